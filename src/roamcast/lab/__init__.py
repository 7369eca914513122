"""The laboratory: what is done with scenarios and traces. Needs `roamcast[lab]`.

    import roamcast.lab as lab
    lab.open("out/areas").deliveries        # a Spark DataFrame, on the notebook's own session or one of ours
    lab.open("out/areas", engine="arrow").deliveries   # a pyarrow.Table, without Spark

One run: `run/` (from scenario to tables and metrics), `why/` (why a delivery did not happen). Many runs:
`sweep/`, over `spark/` (the session and its Java) and `storage/` (folders by URI). `report/` shows a sweep;
`published/` puts the papers' figures beside ours, some of them by `studies/`; `league/` compares all
strategies. `recordings/` makes contact plans of recorded mobility, `groups/` multicast groups of recorded
subscriptions, `live/` tables of what running nodes write. `notebook.py` is what a notebook uses; nothing is
imported before it is called.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from roamcast.lab.notebook import Recorded

__all__ = ["open"]


@overload
def open(uri: "str | Path", spark: "SparkSession | None" = None) -> "Recorded[DataFrame]": ...
@overload
def open(uri: "str | Path", *, engine: Literal["arrow"]) -> "Recorded[pa.Table]": ...
def open(uri: "str | Path", spark: "SparkSession | None" = None, *, engine: str = "spark") -> "Recorded[Any]":
    """What `sweep`, `simulate --out` or `collect` wrote, by path or URI: its tables as Spark DataFrames.

    `spark`: the session to use; by default the one that runs, else an embedded one. With `engine="arrow"`
    tables are `pyarrow.Table`s, and neither Spark nor Java is needed.
    """
    from roamcast.lab.notebook import opened

    return opened(uri, spark, engine)
