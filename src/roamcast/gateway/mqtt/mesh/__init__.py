"""Between clients and the mesh: `exchange.py`; `mapping.py` (messages as events and back),
`content.py` (topic filters with conditions).
"""
