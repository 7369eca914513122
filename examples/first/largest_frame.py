"""A metric of one's own: the largest frame of a run, as SQL over the trace. See CONTRIBUTING.md."""

from roamcast.lab.run.metrics import METRICS, Metric

METRICS.add("largest_frame", Metric("octets", "the largest frame that was sent", "frames", "MAX(size)"))
