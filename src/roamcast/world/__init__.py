"""Motion, contact plans, radio parameters, recorded formats: values and pure functions. `trajectory.py`
(motion), `crossings.py` (exact contact plans) over `pieces.py`, `candidates.py`, `sightlines.py` and
`walls.py`; `contacts.py` (the plan); `mobility/` (models), `formats/` (recordings); `graph.py` and
`walk.py` (hosts on generated networks).
"""
