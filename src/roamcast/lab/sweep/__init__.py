"""Many runs. `experiment.py`: the file and its cells. `sweep.py`: runs as Spark tasks, over `folder.py`
(the files of a sweep, written atomically). `results.py` and `summary.py`: the results read back, with their
uncertainty. `demo.py`.
"""
