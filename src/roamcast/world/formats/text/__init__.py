"""What readers share: `source.py` and `numbers.py` (text to values; errors name the place), `xml_events.py`,
`saving.py` (files written whole or not at all), `guess.py` (the format of a file).
"""
