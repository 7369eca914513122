"""What readers share: `source.py` and `numbers.py` (text to values, with the place of every fault),
`xml_events.py`, `saving.py` (whole or not at all), `guess.py` (which format is it?).
"""
