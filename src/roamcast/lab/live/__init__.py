"""What running nodes write: `streaming.py` (windows of their traces), `archive.py` (stored events by
filter).
"""
