"""Which multicast groups would have cost the least: `grouping.py` on Spark, `job.py` for its workers,
`costs.py`.
"""
