"""Compact subscriptions and events (section 3.3): `summary.py` and what it is made of (`bloom`, `cells`,
`conditions`, `entry`, `geometry`), `digest.py` (an event), `lookup.py` (one against
many).
"""
