"""The contact plan of a recording as one file: CSV or Parquet, made of the parts that workers wrote."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

from roamcast.errors import FileError, InputError
from roamcast.lab.recordings.contact_job import CONTACTS, ContactGrid
from roamcast.world.formats.text.numbers import seconds_text
from roamcast.world.formats.text.saving import save_lines


class PlanFile(NamedTuple):
    """Where the plan goes, and the names beside it."""

    plan: Path
    names: Path
    is_csv: bool

    @staticmethod
    def of(out: Path) -> "PlanFile":
        stem = out.name.removesuffix(".gz")
        if not (out.name.endswith((".parquet", ".csv", ".csv.gz"))):
            raise InputError(str(out), "is no name for a plan; it ends in .parquet, .csv or .csv.gz")
        plan = out.absolute()
        target = PlanFile(plan, plan.with_name(f"{Path(stem).stem}.names.csv"), stem.endswith(".csv"))
        target.refuse_existing()
        if not plan.parent.is_dir():
            raise FileError(str(out), "cannot be written: its folder does not exist")
        return target

    def refuse_existing(self) -> None:
        for path in (self.plan, self.names):
            if path.exists():
                raise FileError(str(path), "exists already; a plan is never written over another thing")

    def write(self, plan: DataFrame, folder: Path, layout: ContactGrid, names: list[str]) -> int:
        """The plan in its order, and how many contacts it has. A plan that is there has its names."""
        ordered = str(folder / "ordered")
        whole = folder / self.plan.name
        if self.is_csv:
            plan.createOrReplaceTempView("roamcast_contact_plan")
            changes = plan.sparkSession.sql("""
                SELECT start AS time, 'up' AS state, sender, receiver FROM roamcast_contact_plan
                UNION ALL SELECT end, 'down', sender, receiver FROM roamcast_contact_plan""")
            changes.orderBy("time", "state", "sender", "receiver").write.parquet(ordered)
            count = _count(ordered) // 2
            save_lines(whole, chain([f"# nodes: {layout.nodes}", "time,i,j,state"], _change_rows(ordered)))
        else:
            plan.orderBy("start", "sender", "receiver").write.parquet(ordered)
            count = _count(ordered)
            _save_parquet(whole, ordered, layout)
        self.refuse_existing()
        if names != [str(number) for number in range(len(names))]:
            rows = (f"{number},{_quoted(name)}" for number, name in enumerate(names))
            save_lines(self.names, chain(["node,name"], rows))
        whole.replace(self.plan)
        return count


def _files(folder: str) -> list[Path]:
    """Spark numbers the files of an ordered table in its order."""
    return sorted(Path(folder).glob("part-*.parquet"))


def _count(folder: str) -> int:
    return sum(pq.read_metadata(file).num_rows for file in _files(folder))


def _change_rows(folder: str) -> Iterator[str]:
    for file in _files(folder):
        for batch in pq.ParquetFile(file).iter_batches():
            columns = (batch.column(name).to_pylist() for name in ("time", "sender", "receiver", "state"))
            for moment, a, b, state in zip(*columns, strict=True):
                yield f"{seconds_text(moment)},{a},{b},{state}"


def _save_parquet(path: Path, folder: str, layout: ContactGrid) -> None:
    metadata = {"nodes": str(layout.nodes), "duration": str(layout.duration), "begins": str(layout.begins)}
    schema = pa.schema([field.with_nullable(False) for field in list(CONTACTS)[:4]], metadata=metadata)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for file in _files(folder):
            for batch in pq.ParquetFile(file).iter_batches(batch_size=1 << 20):
                writer.write_table(pa.Table.from_arrays(batch.columns, schema=schema))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(mark in name for mark in ',"') else name
