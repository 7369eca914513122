"""One run: `runs.py` from scenario to result. `tables.py`: the trace as Arrow tables and Parquet. Ground
truth beside it: `expected.py` (who should get what, and who got what nobody wanted), `overlay_graph.py`, over
`graph.py` (the contacts, replayed). `metrics.py`: every metric, as SQL. `ideal.py`: what ideal
store-and-carry would deliver.
"""
