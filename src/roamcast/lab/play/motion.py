"""Where nodes are, and the world around them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.lab.play.layout import laid_out
from roamcast.lab.play.packing import Columns, Numbers, Window
from roamcast.scenario import Scenario
from roamcast.scenario.world import ranges_of
from roamcast.trace import Moved
from roamcast.world.mobility import Model

KNOTS_MAX = 400_000  # chosen by us: 3 MB of the page's 10
LAID_OUT = (
    "This run has no positions. Nodes are drawn where a layout of their links puts them: near each other if "
    "they were linked for long. Distances mean nothing, and nothing moves."
)


def pack_motion(
    columns: Columns,
    tables: Mapping[str, pa.Table],
    window: Window,
    scenario: Scenario | None,
    notes: list[str],
) -> dict[str, Any]:
    """Columns `knot.*`, by node then by time; `knot.first` has where each node's begin."""
    table = tables[Moved.TABLE]
    node: Numbers
    x: Numbers
    y: Numbers
    if len(table) == 0:
        notes.append(LAID_OUT)
        x, y = laid_out(tables, window)
        node = np.arange(len(window.nodes))
        t, present = np.full(len(node), window.begin), np.ones(len(node), dtype=bool)
    else:
        node = window.places(table["node"].to_numpy())
        t, x, y = (table[name].to_numpy() for name in ("t", "x", "y"))
        present = table["present"].to_numpy(zero_copy_only=False)
        order = np.lexsort((t, node))
        node, t, x, y, present = (column[order] for column in (node, t, x, y, present))
        kept = _needed(node, t, window)
        node, t, x, y, present = (column[kept] for column in (node, t, x, y, present))
        missing = len(window.nodes) - len(np.unique(node))
        if missing:
            notes.append(f"{missing} nodes have no position and are not on the map.")
    bounds = _bounds(x, y, scenario if len(table) else None)
    first = np.searchsorted(node, np.arange(len(window.nodes) + 1))
    # A knot may lie before or after what is shown: its time is kept whole, shifted to be positive.
    shift = max(0, window.begin - int(t.min(initial=window.begin)))
    last = max(0, int(t.max(initial=window.end)) - window.end)
    scale = max(1, -(-(shift + window.end - window.begin + last) // (2**32 - 1)))
    columns.whole(
        "knot",
        {
            "first": first,
            "t": (t - window.begin + shift) // scale,
        },
    )
    columns.real(
        "knot",
        {
            "x": x - bounds[0],
            "y": y - bounds[1],
        },
    )
    columns.whole(
        "knot",
        {
            "present": present,
        },
    )
    left, bottom = bounds[0], bounds[1]
    return {
        "knots": {"shift": shift, "scale": scale},
        "bounds": [0, 0, bounds[2] - left, bounds[3] - bottom],
        "corner": [left, bottom],
        "laidOut": len(table) == 0,
    } | _world(scenario, len(table) == 0, left, bottom)


def _needed(node: Any, t: Any, window: Window) -> Any:
    """The knots that matter for the window; beyond the bound, of each node every so many, and its last."""
    same_before = np.concatenate([[False], node[1:] == node[:-1]])
    same_after = np.concatenate([node[1:] == node[:-1], [False]])
    next_t = np.where(same_after, np.concatenate([t[1:], t[-1:]]), t)
    before_t = np.where(same_before, np.concatenate([t[:1], t[:-1]]), t)
    kept = np.flatnonzero((next_t >= window.begin) & (before_t <= window.end))
    if len(kept) > KNOTS_MAX:
        step = -(-len(kept) // KNOTS_MAX)
        ends = ~(same_before & same_after)[kept]
        kept = kept[(np.arange(len(kept)) % step == 0) | ends]
    return kept


def _bounds(x: Any, y: Any, scenario: Scenario | None) -> tuple[float, float, float, float]:
    left, right = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)
    bottom, top = (float(y.min()), float(y.max())) if len(y) else (0.0, 1.0)
    if scenario is not None and scenario.world.area is not None:
        width, height = scenario.world.area
        left, bottom, right, top = min(left, 0.0), min(bottom, 0.0), max(right, width), max(top, height)
    room = 0.02 * max(right - left, top - bottom, 1.0) if right == left or top == bottom else 0.0
    return left - room, bottom - room, right + room, top + room


def _world(scenario: Scenario | None, is_laid_out: bool, left: float, bottom: float) -> dict[str, Any]:
    """Area, walls, streets and ranges, where the scenario has them."""
    nothing: dict[str, Any] = {"area": None, "walls": [], "streets": None, "ranges": None}
    if scenario is None or is_laid_out:
        return nothing
    world, mobility = scenario.world, scenario.world.mobility
    if world.range is not None and not getattr(mobility, "HAS_CONTACTS", False):
        nothing["ranges"] = ranges_of(scenario)
    if world.area is None:
        return nothing
    width, height = world.area
    nothing["area"] = [-left, -bottom, width - left, height - bottom]
    if isinstance(mobility, Model):
        area = (width, height)
        nothing["walls"] = [
            [wall.left - left, wall.bottom - bottom, wall.right - left, wall.top - bottom]
            for wall in mobility.walls(area)
        ]
        streets = getattr(mobility, "streets", None)
        if callable(streets):
            made = streets(area)
            nothing["streets"] = {"xs": [x - left for x in made.xs], "ys": [y - bottom for y in made.ys]}
    return nothing
