"""What models are built from: `path.py` (pieces to knots), `stationary.py` (why and how runs start in the
middle), `waypoints.py` (the walk behind most models), `groups.py`, `streets.py`, `driving.py`, `town.py`.
"""
