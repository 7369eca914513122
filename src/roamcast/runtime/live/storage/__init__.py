"""What survives a crash: `database.py` (one SQLite file, and the broker's store in it), `clients.py`
(sessions of named clients).
"""
