"""Which brokers share a multicast group (section 3.4): `channels.py`, over `covering_graph.py` and
`k_means.py`.
"""
