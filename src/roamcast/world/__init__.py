"""Motion, contact plans, radio parameters, recorded formats: values and pure functions. `trajectory.py`
(motion), `crossings.py` (exact contact plans) over `candidates.py` and `walls.py`; `contacts.py` (the plan);
`mobility/` (models), `formats/` (recordings); `graph.py` (hosts on generated networks); `reach.py` (which
nodes a path leads to).
"""
