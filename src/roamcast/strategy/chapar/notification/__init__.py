"""The transport of events (section 4.2): `attachment.py` (a node and its broker), `courier.py` over
`multicast.py` (the virtual multicast tree), `inbox.py` (memorized events: each once, in order).
"""
