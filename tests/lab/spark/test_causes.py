"""What a person reads when a job failed: the cause, and the file."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from roamcast.errors import FileError, RoamcastError
from roamcast.lab.spark import session as session_module
from roamcast.lab.spark.causes import cause_of_trace
from roamcast.lab.spark.session import with_session


def failure(work: Callable[[SparkSession], Any]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        # An error that Java sent is told at once: nobody waits for the end of a Java that lives.
        patch.setattr(session_module, "JAVA_ENDS_SECONDS", 3_600.0)
        with pytest.raises(RoamcastError) as raised:
            with_session(None, work, "so much for that")
    line = str(raised.value)
    assert "\n" not in line and line.endswith("; so much for that")
    return line.removeprefix("Spark gave up: ").removesuffix("; so much for that")


def in_a_worker(error: Exception) -> Callable[[SparkSession], Any]:
    def fail(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise error
        yield

    return lambda spark: spark.range(0, 1, 1, 1).mapInArrow(fail, "id long").collect()


@pytest.mark.spark
def test_an_error_of_a_worker_is_its_last_line() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/part-0")
    assert failure(in_a_worker(full)) == "OSError: [Errno 28] No space left on device: '/data/part-0'"
    assert failure(in_a_worker(FileError("/data/x.csv:4", "is wrong"))) == "/data/x.csv:4: is wrong"
    assert failure(in_a_worker(ZeroDivisionError())) == "ZeroDivisionError"


@pytest.mark.spark
def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), whole)
    octets = whole.read_bytes()
    short, damaged, lost = (tmp_path / f"{name}.parquet" for name in ("short", "damaged", "lost"))
    short.write_bytes(octets[:200])
    damaged.write_bytes(octets[:20] + bytes(180) + octets[200:])

    def read(file: Path) -> Callable[[SparkSession], Any]:
        return lambda spark: spark.read.schema("a long").parquet(str(file)).collect()

    assert f"{short} is not a Parquet file" in failure(read(short))
    assert failure(read(damaged)) == f"{damaged}: IOException: FAILED_TO_UNCOMPRESS(5)"
    assert f"Path does not exist: {lost}" in failure(read(lost))


def test_a_trace_without_an_exception_is_its_first_line() -> None:
    lost = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: "
    assert cause_of_trace(lost + "ExecutorLostFailure (executor 1 exited)\nDriver stacktrace:") == (
        "ExecutorLostFailure (executor 1 exited)"
    )
