"""Many runs of a cell as one figure with its uncertainty; and the tables that describe a sweep.

Computed here and not in SQL, with an exact sum over the runs in their order: a mean must not change in
its last digits because tasks ended in another order. No Spark job makes the tables `runs`, `metrics` and
`summary`: every run was measured in its own task.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from scipy import stats

from roamcast.lab.run.metrics import METRICS, metric_of
from roamcast.lab.run.tables import NODE_LIST, UNITS
from roamcast.lab.sweep.experiment import Experiment, RunPlan
from roamcast.lab.sweep.folder import OK, RunRecord

CONFIDENCE = 0.95


@dataclass(frozen=True)
class SampleMean:
    """Of the values that exist: how many, their mean and its confidence interval. None: too few values."""

    count: int
    mean: float | None
    std: float | None  # of the sample, n - 1
    ci_low: float | None  # 95 % confidence interval of the mean, Student's t
    ci_high: float | None


def spread(values: Sequence[float]) -> SampleMean:
    count = len(values)
    if count == 0:
        return SampleMean(0, None, None, None, None)
    mean = math.fsum(values) / count
    if count == 1:
        return SampleMean(1, mean, None, None, None)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = t_quantile(count - 1) * std / math.sqrt(count)
    return SampleMean(count, mean, std, mean - half, mean + half)


@lru_cache
def t_quantile(degrees: int) -> float:
    """How many standard errors the interval reaches to either side."""
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, degrees))


class AxisColumns:
    """The columns of an experiment's axes: `world.nodes` becomes `world_nodes`, which needs no quotes in SQL.

    Numbers, texts and booleans keep their type; any other or mixed values become JSON text.
    """

    def __init__(self, experiment: Experiment) -> None:
        taken = {*_RUN_FIELDS.names, *METRICS, "metric", "count", "mean", "std", "ci_low", "ci_high"}
        self.names: dict[str, str] = {}  # by axis
        for key in experiment.axes:
            name = re.sub(r"\W", "_", key)
            while name in taken:
                name = f"axis_{name}"
            taken.add(name)
            self.names[key] = name
        self._types = {key: _axis_type(values) for key, values in experiment.axes.items()}
        self._as_text = {
            key
            for key, values in experiment.axes.items()
            if self._types[key] == pa.string() and not all(isinstance(value, str) for value in values)
        }
        self.fields = [
            pa.field(name, self._types[key], nullable=False, metadata={"axis": key})
            for key, name in self.names.items()
        ]

    def row(self, axes: Mapping[str, Any]) -> dict[str, Any]:
        """A cell's axis values under their columns' names."""
        return {
            self.names[key]: msgspec.json.encode(value).decode() if key in self._as_text else value
            for key, value in axes.items()
        }


def runs_table(experiment: Experiment, ended: Sequence[tuple[RunPlan, RunRecord]]) -> pa.Table:
    """One row per run that ended, in the order of the plan."""
    axes = AxisColumns(experiment)
    rows = []
    cell, of_cell = -1, dict[str, Any]()
    for plan, record in ended:
        if plan.cell != cell:
            # A failed run has only what was asked for; the rest of `RunInfo` is known only after a run.
            cell, of_cell = plan.cell, experiment.asked(plan.axes) | axes.row(plan.axes)
        row = of_cell | {name: getattr(record, name) for name in _RECORD_FIELDS}
        if record.info is not None:
            row |= {name: getattr(record.info, name) for name in _INFO_FIELDS}
        rows.append(row | {"cell": plan.cell, "seed": plan.seed})
    fields = list(_RUN_FIELDS)
    return pa.Table.from_pylist(rows, schema=pa.schema([*fields[:2], *axes.fields, *fields[2:]]))


def metrics_table(
    experiment: Experiment, ended: Sequence[tuple[RunPlan, RunRecord]], names: Sequence[str]
) -> pa.Table:
    """One row per run that ended well, in the order of the plan."""
    axes = AxisColumns(experiment)
    well = [(plan, record) for plan, record in ended if record.status == OK]
    described = [
        {"run": plan.run, "cell": plan.cell, "seed": plan.seed, **axes.row(plan.axes)} for plan, _ in well
    ]
    fields = [_RUN_FIELDS.field("run"), _RUN_FIELDS.field("cell"), *axes.fields, _RUN_FIELDS.field("seed")]
    table = pa.Table.from_pylist(described, schema=pa.schema(fields))
    for name in names:
        values = [record.figures.get(name) for _, record in well]
        present = [value for value in values if value is not None]
        whole = bool(present) and all(isinstance(value, int) for value in present)  # a count, not a ratio
        column = pa.array(values, pa.int64() if whole else pa.float64())
        unit = metric_of(name).unit
        table = table.append_column(
            pa.field(name, column.type, metadata={"unit": unit} if unit else None), column
        )
    return table


def summary_table(
    metrics: pa.Table, names: Sequence[str], cells: Sequence[Mapping[str, Any]], axes: Sequence[pa.Field]
) -> pa.Table:
    """One row per cell and metric. `cells` has the axis columns of each cell; one without runs counts 0."""
    members: list[list[int]] = [[] for _ in cells]
    for row, cell in enumerate(metrics["cell"].to_pylist()):
        members[cell].append(row)
    columns = {name: metrics[name].to_pylist() for name in names}
    rows = []
    for cell, axis_values in enumerate(cells):
        for name in names:
            values = [columns[name][row] for row in members[cell]]
            found = spread([value for value in values if value is not None])
            rows.append({"cell": cell, **axis_values, "metric": name, **asdict(found)})
    schema = pa.schema(
        [
            pa.field("cell", pa.int32(), nullable=False),
            *axes,
            pa.field("metric", pa.string(), nullable=False),
            pa.field("count", pa.int64(), nullable=False),
            *(pa.field(name, pa.float64()) for name in ("mean", "std", "ci_low", "ci_high")),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def _axis_type(values: Sequence[Any]) -> pa.DataType:
    if all(isinstance(value, bool) for value in values):
        return pa.bool_()
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return pa.int64()
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return pa.float64()
    return pa.string()


def _field(name: str, column_type: pa.DataType, nullable: bool = True) -> pa.Field:
    unit = UNITS.get(name)
    return pa.field(name, column_type, nullable=nullable, metadata={"unit": unit} if unit else None)


_INFO_FIELDS = [
    "name",
    "strategy",
    "nodes",
    "duration",
    "warmup",
    "brokers",
    "runtime",
    "sim_events",
    "wall_s",
]
_RECORD_FIELDS = ("run", "status", "error", "traceback", "seconds", "attempt")
_RUN_FIELDS = pa.schema(
    [
        _field("run", pa.string(), nullable=False),
        _field("cell", pa.int32(), nullable=False),
        _field("seed", pa.int64(), nullable=False),
        _field("status", pa.string(), nullable=False),
        _field("error", pa.string()),
        _field("traceback", pa.string()),
        _field("seconds", pa.float64(), nullable=False),
        _field("attempt", pa.int32(), nullable=False),
        # What follows is `RunInfo`, NULL for a failed run but for the first two.
        _field("name", pa.string()),
        _field("strategy", pa.string()),
        _field("nodes", pa.int32()),
        _field("duration", pa.int64()),
        _field("warmup", pa.int64()),
        _field("brokers", NODE_LIST),
        _field("runtime", pa.string()),
        _field("sim_events", pa.int64()),
        _field("wall_s", pa.float64()),
    ]
)
