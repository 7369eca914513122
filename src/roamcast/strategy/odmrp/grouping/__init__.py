"""Which brokers share a multicast group (section 3.4): `methods.py` over `covering_graph.py` and
`k_means.py`; `channels.py`: the groups that a publisher's broker makes.
"""
