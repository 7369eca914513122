"""What running nodes write. Their traces: `trace_folder.py` (the files), `streaming.py` (the job that reads
new ones), `windows.py` (figures per window of time), `screen.py`. Stored events: `archive.py` (Parquet,
queried by filter text), `conditions.py` (a filter as Spark SQL).
"""
