"""Between clients and the mesh: `exchange.py`; `mapping.py` and `message.py` (messages as events and back),
`content.py` (topic filters with conditions), `retained.py` (the newest message of each topic).
"""
