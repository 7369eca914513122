"""What survives a crash: `database.py` (one SQLite file), `events.py` (the broker's store in it),
`clients.py` (sessions of named clients).
"""
