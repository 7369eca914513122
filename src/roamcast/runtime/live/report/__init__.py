"""What a node says about itself: `counters.py` (Prometheus), `journal.py`, `trace_file.py`."""
