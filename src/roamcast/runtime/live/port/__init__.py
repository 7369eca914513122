"""The port of a live node (`roamcast.host.Host`): `clock.py`, `inputs.py` (one at a time), `timers.py`,
`host.py`.
"""
