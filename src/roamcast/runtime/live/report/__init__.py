"""What a node reports about itself: `counters.py` (Prometheus), `journal.py`, `segments.py` (the trace)."""
