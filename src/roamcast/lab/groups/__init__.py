"""Which number of multicast groups would have cost least: `grouping.py` (the Spark job and the cost
model), `job.py` (the steps of its workers).
"""
