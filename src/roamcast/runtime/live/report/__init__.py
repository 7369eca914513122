"""What a node reports about itself: `counters.py` (Prometheus), `journal.py`, `trace_file.py`."""
