"""The cost of each number of groups: the model, the figures, and how they are shown."""

from typing import NamedTuple

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

SIZES_SHOWN = 8


class CostModel(msgspec.Struct, frozen=True, kw_only=True):
    """What traffic costs, in deliveries of one event to one member."""

    refresh_interval: float = 5.0  # seconds; section 4.1
    # One group's share of a refresh: the Join Tables that come back and the entries they carry. The Join
    # Request itself is flooded once for all groups of a publisher. Chosen by us; `--control-cost` sets it.
    control_cost: float = 10.0


class GroupingCost(NamedTuple):
    """One number of groups."""

    k: int
    groups: int  # K-means may leave some empty
    sizes: tuple[int, ...]  # members of each, the largest first; in a sweep, of all runs together
    matched: int
    noise: int
    control: int
    total: float


class Grouping(NamedTuple):
    costs: list[GroupingCost]  # by k
    best: int  # the k of the smallest total; the smaller one of two that are equal
    brokers: int
    events: int

    def to_text(self) -> str:
        heads = ("k", "groups", "matched", "noise", "control", "total", "sizes")
        rows = [
            (
                each.k,
                each.groups,
                each.matched,
                each.noise,
                each.control,
                f"{each.total:.0f}",
                _sizes(each.sizes),
            )
            for each in self.costs
        ]
        table = [heads, *(tuple(map(str, row)) for row in rows)]
        widths = [max(len(row[column]) for row in table) for column in range(len(heads) - 1)]
        lines = [
            "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
            for row in table
        ]
        ending = f"{self.brokers} brokers, {self.events} events; {self.best} groups would have cost least"
        return "\n".join([*lines, ending])

    def to_json(self) -> str:
        costs = [cost._asdict() for cost in self.costs]
        return msgspec.json.encode(self._asdict() | {"costs": costs}).decode()


def cost_of(
    k: int, groups: pa.Table, matched: int, reached: int, refreshes: dict[str, int], model: CostModel
) -> GroupingCost:
    """Of one number of groups: `groups` as `grouping_job.GROUPS`, `refreshes` of each run."""
    sizes: dict[int, int] = {}
    control = 0
    for row in groups.to_pylist():
        if row["k"] == k:
            sizes[row["number"]] = sizes.get(row["number"], 0) + row["members"]
            control += refreshes.get(row["run"], 0)
    total = reached + model.control_cost * control
    ordered = tuple(sorted(sizes.values(), reverse=True))
    return GroupingCost(k, len(sizes), ordered, matched, reached - matched, control, total)


def _sizes(sizes: tuple[int, ...]) -> str:
    more = ["…"] if len(sizes) > SIZES_SHOWN else []
    return " ".join([*map(str, sizes[:SIZES_SHOWN]), *more])
