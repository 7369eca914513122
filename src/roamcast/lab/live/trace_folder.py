"""A folder that nodes put trace files into: `<folder>/<table>/<anything>.parquet`.

A file has the columns of its table in `trace.py` after two more, `run` and `strategy`.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from roamcast.errors import FileError
from roamcast.lab.run.tables import schema
from roamcast.trace import Record

_MARK = [pa.field("run", pa.string(), nullable=False), pa.field("strategy", pa.string(), nullable=False)]


def put(table: pa.Table, kind: type[Record], folder: Path, name: str, *, run: str, strategy: str) -> Path:
    """Add a table of records (`tables.table`) to a watched folder. The file appears whole or not at all."""
    marked = table
    for field, value in zip(reversed(_MARK), (strategy, run), strict=True):
        marked = marked.add_column(0, field, pa.repeat(pa.scalar(value, pa.string()), len(table)))
    target = folder / kind.TABLE / f"{name}.parquet"
    if target.exists():
        raise FileError(str(target), "exists already; every trace file has a name of its own")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.part")  # Spark skips names that begin with a dot
        pq.write_table(marked, partial, compression="zstd")
        partial.replace(target)
    except OSError as error:
        raise FileError(str(target), f"cannot be written: {error.strerror or error}") from error
    return target


def file_schema(kind: type[Record]) -> pa.Schema:
    """The columns of a table's files."""
    return pa.schema([*_MARK, *schema(kind)])


def problem_of(path: str, kind: type[Record]) -> str | None:
    """Why a file does not belong to a table; None if it does."""
    try:
        found = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        return f"is no Parquet file: {str(error).splitlines()[0]}"
    for field in file_schema(kind):
        if field.name not in found.names:
            return f"has no column {field.name}"
        if found.field(field.name).type != field.type:
            return f"has column {field.name} of type {found.field(field.name).type}; expected {field.type}"
    return None


def runs_in(files: Iterable[str]) -> set[str]:
    """The runs that these trace files belong to."""
    return {
        run for file in files for run in pc.unique(pq.read_table(file, columns=["run"])["run"]).to_pylist()
    }
