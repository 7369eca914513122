"""Which number of multicast groups would have cost least: `grouping.py` (the Spark job), `job.py` (the steps
of its workers), `costs.py` (the cost model).
"""
