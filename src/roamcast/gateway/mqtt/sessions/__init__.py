"""What outlives a connection: `session.py` (one client), `table.py` (all of them), `durable.py` (what
outlives the node), `interests.py` (who wants what), `outlet.py` (sending to the client).
"""
