"""Clients without a broker of their own (sections 3.5 and 4: broker participation). A device that is no
broker finds one nearby, leaves its subscriptions there, publishes through it and gets its events from it, by
unicast.

`messages.py`, `post.py` (unicast over the paths that a search leaves), `client.py` (the device), `service.py`
(its broker).
"""
