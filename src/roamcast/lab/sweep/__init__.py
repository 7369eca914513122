"""Many runs. `experiment.py`: the file and its cells. `sweep.py`: runs as Spark tasks, over `folder.py`
(what lies where, and how it gets there whole). `results.py` and `summary.py`: read back, with their
uncertainty. `demo.py`.
"""
