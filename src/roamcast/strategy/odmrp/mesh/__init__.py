"""The mesh as a node sees it (section 3.5): `messages.py`, `routes.py`, `forwarding_group.py`,
`join_tables.py`, `interests.py`; `publisher.py`: the publisher's broker; `prediction.py`: how long links
last (3.6).
"""
