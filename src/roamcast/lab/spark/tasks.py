"""A function over a list of values, one task each: what RDDs are for elsewhere, by DataFrames alone.

So it works on every session, Spark Connect included. Values and results travel pickled.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import SparkFiles, cloudpickle
from pyspark.sql import SparkSession

Given = TypeVar("Given")
Made = TypeVar("Made")


def mapped(spark: SparkSession, work: Callable[[Given], Made], values: Sequence[Given]) -> list[Made]:
    """`work` of each value, in their order. An error in a worker ends the job."""
    if not values:
        return []
    pickle: Callable[[object], bytes] = cloudpickle.dumps  # of functions defined in a notebook too
    pickled = [pickle(value) for value in values]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark ends its workers without a word. What they leave in its own folder goes with that.
        tempfile.tempdir = SparkFiles.getRootDirectory()
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            made = [pickle(work(cloudpickle.loads(pickled[number]))) for number in numbers]
            yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(made, pa.binary())], ["id", "made"])

    found = spark.range(0, len(values), 1, len(values)).mapInArrow(run, "id long, made binary").toArrow()
    ordered = found.sort_by("id")["made"]
    return [cloudpickle.loads(each.as_py()) for each in ordered]
