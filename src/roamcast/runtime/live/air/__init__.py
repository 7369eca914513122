"""One hop on real interfaces: `radio.py` over `datagrams.py` (joined, sealed, acknowledged) and `links.py`
(TCP), `air.py` (all interfaces), `sockets.py` (one of them in one family), `interface.py`; `frames.py`: the
octets; `peers.py`: who was heard where, and by which path each is reached.
"""
