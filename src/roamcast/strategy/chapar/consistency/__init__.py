"""Brokers that agree (section 4.2): `check.py` (tables, inheritance, check-out, brokers that meet) with
`listing.py` (tables in messages), `memory.py` (memorized events among brokers).
"""
