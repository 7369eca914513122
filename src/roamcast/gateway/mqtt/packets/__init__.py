"""The packets of MQTT 3.1.1 and 5: `values.py` (types), `decode.py`, `encode.py`, over `primitives.py` and
`properties.py`; `reasons.py`: reason codes; `numerals.py`: texts that are numbers.
"""
