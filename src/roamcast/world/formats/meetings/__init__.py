"""Formats of contacts, and `encounters.py` (contacts under names become a plan)."""
