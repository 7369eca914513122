"""What models are built from: `path.py` (pieces to knots), `stationary.py` (why and how nodes start in the
long-run distribution), `waypoints.py` (the walk behind most models), `groups.py`, `streets.py`, `driving.py`,
`town.py`.
"""
