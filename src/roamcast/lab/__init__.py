"""The laboratory: what is done with scenarios and traces. Needs `roamcast[lab]`.

    import roamcast.lab as lab
    lab.open("out/areas").deliveries        # a Spark DataFrame, on the notebook's own session or one of ours

One run: `run/` (from scenario to tables and metrics), `why/` (why a delivery did not happen). Many runs:
`sweep/`, over `spark/` (the session and its Java) and `storage/` (folders by URI). `report/` shows a sweep;
`published/` puts the papers' figures beside ours, some of them by `studies/`; `league/` compares all
strategies. `recordings/` makes contact plans of recorded mobility, `groups/` multicast groups of recorded
subscriptions, `live/` tables of what running nodes write. `notebook.py` is what a notebook uses; nothing is
imported before it is called.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roamcast.lab.notebook import Recorded

__all__ = ["open"]


def open(uri: "str | Path", spark: "SparkSession | None" = None) -> "Recorded":
    """What `sweep`, `simulate --out` or `collect` wrote, by path or URI: its tables as Spark DataFrames.

    `spark`: the session to use; by default the one that runs, else an embedded one.
    """
    from roamcast.lab.notebook import recorded

    return recorded(uri, spark)
