"""Many runs of a cell as one figure with its uncertainty.

Computed here and not in SQL, with an exact sum over the runs in their order: a mean must not change in
its last digits because tasks ended in another order.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from scipy import stats

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
