"""Many runs. `experiment.py`: the file and its cells. `sweep.py`: runs as Spark tasks (`jobs.py`), into a
folder (`folder.py`) of `segments.py`; `tables.py` and `summary.py`: what describes a sweep; `check.py`:
Spark's SQL against the figures. `results.py`: the results read back. `demo.py`.
"""
