"""One hop on a real interface: `radio.py` over `datagrams.py` (joined, sealed, acknowledged), `link.py` and
`links.py` (TCP), `sockets.py`, `interface.py`; `frames.py`: the octets; `peers.py`: who was heard where;
`kernel_routes.py`: the machine's own routing table.
"""
