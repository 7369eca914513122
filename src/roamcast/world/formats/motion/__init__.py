"""Formats of paths, and `fixes.py` (values to motion: order, conflicts, gaps) and `projection.py` (degrees
to metres).
"""
