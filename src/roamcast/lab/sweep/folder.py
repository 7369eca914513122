"""A sweep's folder: which files it holds, and how they are written atomically.

    experiment.json                     what is swept; a folder holds one experiment
    manifest/<run>.json                 one file per run that ended, well or not: the last thing it writes
    <table>/cell=<n>/<run>.parquet      the trace tables, with a leading column `run`
    runs/ metrics/ summary/             made from the above when all runs have ended

Every file is written under another name and then renamed, so it is whole or not there. A run counts as ended
only when its manifest file exists. An interrupted run is repeated and writes the same file names, so nothing
is there twice. Hidden files are left over from interrupted writes; Spark and Arrow skip them.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from roamcast.errors import FileError, InputError
from roamcast.lab.run.derived import TABLES
from roamcast.lab.run.tables import NODE_LIST, RunInfo, with_run
from roamcast.lab.sweep.experiment import Experiment, RunPlan
from roamcast.scenario import with_settings

EXPERIMENT_FILE = "experiment.json"
MANIFEST = "manifest"
STAGING = ".staging"
TRACE_TABLES = tuple(kind.TABLE for kind in TABLES)
MADE_TABLES = ("runs", "metrics", "summary")
OK, FAILED = "ok", "failed"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: its file in the manifest."""

    run: str
    status: str  # OK or FAILED
    error: str | None = None  # one line
    traceback: str | None = None
    seconds: float  # wall clock, writing included
    attempt: int  # 1 for the first; increases when a worker died and when a failed run is resumed
    info: RunInfo | None = None  # None for a failed run


class SweepFolder:
    """The files of one sweep. Workers and the driver see the same folder, each through its own object."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    # Beginning.

    def claim(self, experiment: Experiment, resume: bool) -> None:
        """Make the folder this experiment's, or raise without having touched anything."""
        document = self.experiment()
        if document is None:
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                raise InputError(str(self.path), "holds something else; allowed: a new or empty folder")
        else:
            wanted = msgspec.json.decode(msgspec.json.encode(experiment.to_dict()))
            different = [key for key in wanted if document.get(key) != wanted[key]]
            if different:
                raise InputError(
                    str(self.path),
                    f"holds another experiment ({different[0]} not the same); allowed: a new or empty folder",
                )
            if not resume:
                raise InputError(
                    str(self.path),
                    "holds this experiment already; use --resume to run what is missing or failed",
                )
        try:
            for name in (MANIFEST, STAGING, *TRACE_TABLES):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            if document is None:
                text = msgspec.json.format(msgspec.json.encode(experiment.to_dict()), indent=2)
                self._place_bytes(text + b"\n", self.path / EXPERIMENT_FILE)
        except OSError as error:
            raise FileError(str(self.path), f"cannot be written: {error.strerror or error}") from error

    def experiment(self) -> dict[str, Any] | None:
        """The folder's `experiment.json`; None if there is none."""
        path = self.path / EXPERIMENT_FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise FileError(str(path), f"cannot be read: {error.strerror}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FileError(str(path), f"is no experiment description: {error}") from error

    # Runs.

    def put_run(self, plan: RunPlan, tables: Mapping[str, pa.Table], record: RunRecord) -> None:
        """All tables of a run, then its record. Called again, it replaces them."""
        with self._staging(plan.run) as staging:
            for name in TRACE_TABLES:
                pq.write_table(with_run(tables[name], plan.run), staging / name, compression="zstd")
            for name in TRACE_TABLES:
                target = self.path / name / f"cell={plan.cell}"
                target.mkdir(exist_ok=True)
                (staging / name).replace(target / f"{plan.run}.parquet")
        self.put_record(record)

    def put_record(self, record: RunRecord) -> None:
        self._place_bytes(msgspec.json.encode(record), self.path / MANIFEST / f"{record.run}.json")

    def recorded(self) -> set[str]:
        """The runs that ended, well or not."""
        with os.scandir(self.path / MANIFEST) as entries:
            return {e.name.removesuffix(".json") for e in entries if e.name.endswith(".json")}

    def record(self, run: str) -> RunRecord:
        path = self.path / MANIFEST / f"{run}.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=RunRecord)
        except OSError as error:
            raise FileError(str(path), f"cannot be read: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise FileError(str(path), f"is no record of a run: {error}") from error

    # Tables of the whole sweep.

    def put_table(self, name: str, table: pa.Table) -> None:
        """One of `MADE_TABLES`, in place of the earlier one."""
        target = self.path / name
        with self._staging(name) as staging:
            (staging / name).mkdir()
            pq.write_table(table, staging / name / f"{name}.parquet", compression="zstd")
            if target.exists():
                target.rename(staging / "earlier")
            (staging / name).rename(target)

    def is_measured(self, runs: pa.Table) -> bool:
        """Whether the made tables are those of exactly these runs: `runs`, which is written last, tells."""
        path = self.path / "runs" / "runs.parquet"
        return path.exists() and bool(pq.ParquetFile(path).read().equals(runs))

    def clean(self) -> None:
        """Remove what interrupted attempts left behind. Only when no worker is writing any more."""
        shutil.rmtree(self.path / STAGING, ignore_errors=True)

    def _staging(self, name: str) -> "_Staging":
        (self.path / STAGING).mkdir(exist_ok=True)
        return _Staging(prefix=f"{name}-", dir=self.path / STAGING)

    def _place_bytes(self, data: bytes, target: Path) -> None:
        with self._staging(target.name) as staging:
            (staging / target.name).write_bytes(data)
            (staging / target.name).replace(target)


class _Staging(tempfile.TemporaryDirectory[str]):
    """A temporary folder as a `Path`; one on the same file system as the sweep, so that renaming works."""

    def __enter__(self) -> Path:  # type: ignore[override]
        return Path(super().__enter__())


# The columns that describe a run.


def axis_columns(experiment: Experiment) -> dict[str, str]:
    """Axis → its column's name: the key itself, unless a fixed column has that name."""
    return {key: f"axis.{key}" if key in _RUN_FIELDS.names else key for key in experiment.axes}


def axis_fields(experiment: Experiment) -> list[pa.Field]:
    """Numbers, texts and booleans keep their type; any other or mixed values become JSON text."""
    columns = axis_columns(experiment)
    return [
        pa.field(columns[key], _axis_type(values), nullable=False) for key, values in experiment.axes.items()
    ]


def axis_row(experiment: Experiment, axes: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's axis values under their columns' names."""
    columns = axis_columns(experiment)
    row = {}
    for field, (key, value) in zip(axis_fields(experiment), axes.items(), strict=True):
        text = field.type == pa.string() and not all(isinstance(v, str) for v in experiment.axes[key])
        row[columns[key]] = msgspec.json.encode(value).decode() if text else value
    return row


def runs_table(experiment: Experiment, records: Sequence[tuple[RunPlan, RunRecord]]) -> pa.Table:
    """One row per run, in the order of the plan."""
    rows: list[dict[str, Any]] = []
    for plan, record in records:
        # A failed run has only what was asked for; the rest of `RunInfo` is known only after a run.
        chosen = with_settings(experiment.tables, plan.settings)
        row: dict[str, Any] = {"name": chosen["scenario"]["name"], "strategy": chosen["strategy"]["name"]}
        if record.info is not None:
            row = msgspec.structs.asdict(record.info)
            row["scenario"] = msgspec.json.encode(record.info.scenario).decode()
        row |= {name: getattr(record, name) for name in RunRecord.__struct_fields__ if name != "info"}
        row |= {"cell": plan.cell, "seed": plan.seed} | axis_row(experiment, plan.axes)
        rows.append(row)
    fields = list(_RUN_FIELDS)
    return pa.Table.from_pylist(rows, schema=pa.schema([*fields[:2], *axis_fields(experiment), *fields[2:]]))


def _axis_type(values: Sequence[Any]) -> pa.DataType:
    if all(isinstance(value, bool) for value in values):
        return pa.bool_()
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return pa.int64()
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return pa.float64()
    return pa.string()


_RUN_FIELDS = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("cell", pa.int32(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("traceback", pa.string()),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        # What follows is `RunInfo`, NULL for a failed run but for the first two.
        pa.field("name", pa.string()),
        pa.field("strategy", pa.string()),
        pa.field("nodes", pa.int32()),
        pa.field("duration", pa.int64()),
        pa.field("warmup", pa.int64()),
        pa.field("brokers", NODE_LIST),
        pa.field("runtime", pa.string()),
        pa.field("sim_events", pa.int64()),
        pa.field("wall_s", pa.float64()),
        pa.field("scenario", pa.string()),
    ]
)
