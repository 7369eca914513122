"""What running nodes write, in segments (`runtime/live/report/segments.py`).

Brought together: `collect.py`. All at once, as one run like any other: `network.py`. As a stream on Spark:
`streaming.py` (the job, each segment once), `extract.py` (what is needed of one, and how clocks differ),
`windows.py` (the state and the figures), `screen.py`. Their events: `archive.py` (Parquet, queried by filter
text), `conditions.py` (a filter as Spark SQL).
"""
