"""The only place that makes a Spark session (`session.py`), and where its Java comes from (`java.py`)."""
