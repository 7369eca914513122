"""What running nodes write. Their traces: `trace_folder.py` (the files), `streaming.py` (the job that follows
them), `windows.py` (figures per window of time), `screen.py`. Stored events: `archive.py` (Parquet, found
again by filter text), `conditions.py` (a filter as Spark SQL).
"""
