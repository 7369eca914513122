"""Brokers that agree (section 4.2): `check.py` (tables, inheritance, check-out), `meetings.py` (brokers
that come into each other's neighbourhood), `memory.py` (memorized events among brokers).
"""
