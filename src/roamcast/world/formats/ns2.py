"""ns-2 movement files (CMU `setdest`, BonnMotion `NSFile`, SUMO's exporter; ns-3, CORE and INET read them).

A node stands at its initial place, goes straight to each destination at the given speed, and stops there.
A `setdest` before arrival replaces the one before, from the node's present position; speed 0 stops it.
Commands of one instant run in the file's order. `$ns_ at t "$node_(i) set X_ v"` is a jump: the node is there
at t, and was at the old place one microsecond before.

Times are rounded to the microsecond, arrivals as well, so a position differs from the exact one by at most
speed × 1 µs; destinations are absolute, so this does not add up. A leg lasts at least 1 µs, also at the
10⁹ m/s with which the Zurich traces place vehicles.

`switch OFF` and `switch ON` (those traces again) mean absence and presence; ns-3 ignores them, and then
every car that is not on the road yet waits at (0, 0), in range of all others. A node that is never on is
left out. Heights (`Z_`) and `$god_` lines are ignored; node commands without motion (`label`, `reset`, …)
too. Anything else is refused.
"""

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from roamcast.errors import FileError
from roamcast.units import SECOND, Micros
from roamcast.world.formats.fixes import Fix, FixStream, MotionOptions
from roamcast.world.formats.text import (
    SECONDS_MAX,
    lines,
    metres_of,
    name_order,
    number_of,
    opened,
    save_lines,
    seconds_text,
    shown,
    time_of,
)
from roamcast.world.trajectory import Motion, Trajectory

_NODE = r"\$node_\(\s*([0-9]{1,18})\s*\)"
_END = r"\s*(?:;\s*)?(?:#.*)?"
_PLACE = re.compile(_NODE + r"\s+set\s+([XYZ])_\s+([^\s;#]+)" + _END)
_AT = re.compile(r'\$ns_?\s+at\s+(\S+)\s+"([^"]*)"' + _END)
_ORDER = re.compile(_NODE + r"\s+(\S+)\s*(.*)")
_IGNORED = re.compile(r"\$god_\b.*")
_WITHOUT_MOTION = frozenset({"reset", "start", "on", "off", "label", "color", "random-motion", "radius"})

What: TypeAlias = Literal["initial", "jump", "setdest", "switch"]


class Ns2Statement(NamedTuple):
    """One line that matters. `values`: axis (0 = X, 1 = Y) and metres; x, y, m/s; or 1 for on, 0 for off."""

    node: str
    time: Micros
    line: int
    what: What
    values: tuple[float, ...]


def read(path: Path, options: MotionOptions) -> Motion:
    by_node: dict[str, list[Ns2Statement]] = {}
    with opened(path) as stream:
        for statement in parse_statements(lines(stream, str(path)), str(path)):
            by_node.setdefault(statement.node, []).append(statement)
    if not by_node:
        raise FileError(str(path), "holds no node; expected lines such as $node_(0) set X_ 150.0")
    names = sorted(by_node, key=name_order)
    walks = [_walked(by_node[name], str(path)) for name in names]
    horizon = max(options.duration or 0, *(walk.rests_at() for walk in walks))
    present: list[tuple[str, Trajectory]] = []
    for name, walk in zip(names, walks, strict=True):
        switches = [s for s in by_node[name] if s.what == "switch"]
        trajectory = _while_on(walk.until(horizon), switches)
        if trajectory is not None:
            present.append((name, trajectory))
    if not present:
        raise FileError(str(path), "switches every node off for the whole time")
    return Motion([trajectory for _, trajectory in present], [name for name, _ in present])


def fixes(path: Path, options: MotionOptions) -> Iterator[FixStream]:
    """The knots of paths that had to be built as a whole."""
    yield FixStream(str(path), _fixes(read(path, options)))


def _fixes(motion: Motion) -> Iterator[Fix]:
    for name, path in zip(motion.names, motion.trajectories, strict=True):
        gaps = [False, *path.gap.tolist()]
        for time, x, y, gap in zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), gaps, strict=True):
            yield Fix(name, time, x, y, 0, gap)


def parse_statements(lines: Iterable[str], where: str) -> Iterator[Ns2Statement]:
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#") or _IGNORED.fullmatch(text):
            continue
        here = f"{where}:{number}"
        if place := _PLACE.fullmatch(text):
            node, axis, value = place.groups()
            metres = metres_of(value, here, f"{axis}_")
            if axis != "Z":
                yield Ns2Statement(node, 0, number, "initial", (float("XY".index(axis)), metres))
        elif order := _AT.fullmatch(text):
            time = time_of(order[1], here)
            yield from _parse_order(order[2].strip(), time, number, here)
        else:
            raise FileError(
                here,
                f"{shown(text)} is no ns-2 movement; expected $node_(i) set X_ v, "
                '$ns_ at t "$node_(i) setdest x y speed", $god_ … or a # comment',
            )


def _parse_order(text: str, time: Micros, line: int, where: str) -> Iterator[Ns2Statement]:
    order = _ORDER.fullmatch(text)
    if order is None:
        if not _IGNORED.fullmatch(text):
            raise FileError(where, f'{shown(text)} is no order to a node; expected "$node_(i) setdest …"')
        return
    node, verb, rest = order.groups()
    arguments = rest.split()
    match verb, arguments:
        case "setdest", [x, y, speed]:
            pace = number_of(speed, where, "speed")
            if pace < 0:
                raise FileError(where, f"speed is {speed}; it is 0 m/s or more")
            to = metres_of(x, where, "x"), metres_of(y, where, "y")
            yield Ns2Statement(node, time, line, "setdest", (*to, pace))
        case "set", [("X_" | "Y_" | "Z_") as axis, value]:
            metres = metres_of(value, where, axis)
            if axis != "Z_":
                yield Ns2Statement(node, time, line, "jump", (float("XY".index(axis[0])), metres))
        case "switch", [("ON" | "OFF") as state]:
            yield Ns2Statement(node, time, line, "switch", (float(state == "ON"),))
        case _ if verb not in _WITHOUT_MOTION:
            raise FileError(
                where,
                f"order {shown(f'{verb} {rest}')}; expected setdest x y speed, set X_ v or switch ON|OFF",
            )


def write(motion: Motion, path: Path) -> None:
    """Exact: reading it back gives the same knots. ns-2 knows no absence, so gaps are refused."""
    for node, trajectory in enumerate(motion.trajectories):
        if trajectory.gap.any() or int(trajectory.times[0]) != 0 or int(trajectory.times[-1]) != motion.ends:
            raise FileError(
                str(path),
                f"ns-2 cannot say that a node is absent, and node {node} is not there all the time from 0 to "
                f"{seconds_text(motion.ends)} s",
            )
    save_lines(path, _statements(motion))


def _statements(motion: Motion) -> Iterator[str]:
    yield f"# nodes: {motion.nodes}, metres and seconds"
    for node, path in enumerate(motion.trajectories):
        yield f"$node_({node}) set X_ {float(path.x[0])!r}"
        yield f"$node_({node}) set Y_ {float(path.y[0])!r}"
        yield f"$node_({node}) set Z_ 0.0"
    for node, path in enumerate(motion.trajectories):
        times, xs, ys = path.times.tolist(), path.x.tolist(), path.y.tolist()
        for k, time in enumerate(times):
            # A leg to the next knot. A pause and the last knot become commands to stop, which keep the knot.
            x, y, speed = xs[k], ys[k], 0.0
            if k + 1 < len(times):
                x, y = xs[k + 1], ys[k + 1]
                speed = math.hypot(x - xs[k], y - ys[k]) / (times[k + 1] - time) * SECOND
            at = seconds_text(time)
            yield f'$ns_ at {at} "$node_({node}) setdest {x!r} {y!r} {speed!r}"'


def _walked(statements: list[Ns2Statement], where: str) -> "_Walk":
    initial: dict[float, float] = {}
    for statement in statements:
        if statement.what == "initial":
            axis, metres = statement.values
            initial[axis] = metres
    if len(initial) < 2:
        first = statements[0]
        raise FileError(
            f"{where}:{first.line}",
            f"node {first.node} has no initial X_ and Y_; ns-2 needs both set before t",
        )
    walk = _Walk(initial[0.0], initial[1.0])
    orders = [s for s in statements if s.what in ("setdest", "jump")]
    for order in sorted(orders, key=lambda s: (s.time, s.line)):
        if order.what == "setdest":
            x, y, speed = order.values
            walk.head_for(x, y, speed, order.time, f"{where}:{order.line}")
        else:
            axis, metres = order.values
            walk.jump(int(axis), metres, order.time)
    return walk


class _Walk:
    """One node and its commands, given in order of time. Each command may add knots."""

    def __init__(self, x: float, y: float) -> None:
        self._knots: list[tuple[Micros, float, float]] = [(0, x, y)]
        self._goal: tuple[float, float] | None = None  # None: it stands
        self._duration_us = 0.0  # of the leg from the last knot to the goal, not rounded
        self._arrives: Micros = 0

    def head_for(self, x: float, y: float, speed: float, time: Micros, where: str) -> None:
        self._advance(time)
        _, here_x, here_y = self._knots[-1]
        distance = math.hypot(x - here_x, y - here_y)
        self._goal = None
        if speed > 0 and distance > 0:
            duration_s = distance / speed
            if duration_s > SECONDS_MAX:
                raise FileError(where, f"node arrives after {duration_s:g} s; a leg ends within 1e11 s")
            self._goal = (x, y)
            self._duration_us = duration_s * SECOND
            self._arrives = time + max(1, round(self._duration_us))

    def jump(self, axis: int, metres: float, time: Micros) -> None:
        if time > 0 and self._knots[-1][0] < time - 1:
            self._advance(time - 1)
        _, x, y = self._knots[-1]
        if self._knots[-1][0] == time:
            self._knots.pop()
        self._knots.append((time, metres, y) if axis == 0 else (time, x, metres))
        self._goal = None

    def rests_at(self) -> Micros:
        """When it stops for good."""
        return self._arrives if self._goal else self._knots[-1][0]

    def until(self, horizon: Micros) -> Trajectory:
        self._advance(horizon)
        return Trajectory.of(self._knots)

    def _advance(self, time: Micros) -> None:
        """Move to `time` and leave a knot there."""
        left, x, y = self._knots[-1]
        if time == left:
            return
        if self._goal is not None and self._arrives <= time:
            self._knots.append((self._arrives, *self._goal))
            self._goal = None
        elif self._goal is not None:
            share = min(1.0, (time - left) / self._duration_us)
            to_x, to_y = self._goal
            self._knots.append((time, x + (to_x - x) * share, y + (to_y - y) * share))
        if self._knots[-1][0] < time:
            self._knots.append((time, *self._knots[-1][1:]))


def _while_on(path: Trajectory, switches: list[Ns2Statement]) -> Trajectory | None:
    """The path without the times at which the node is switched off; None if nothing is left."""
    if not switches:
        return path
    ends = int(path.times[-1])
    since: Micros | None = 0
    stretches: list[tuple[Micros, Micros]] = []
    # Of several switches at one instant the last row counts.
    at = {s.time: bool(s.values[0]) for s in sorted(switches, key=lambda s: (s.time, s.line))}
    for time, on in at.items():
        if on and since is None:
            since = time
        elif not on and since is not None:
            stretches.append((since, min(time, ends)))
            since = None
    if since is not None:
        stretches.append((since, ends))
    knots: list[tuple[Micros, float, float]] = []
    gaps: list[bool] = []
    for start, end in stretches:
        if start < end:
            inside = path.times[(path.times > start) & (path.times < end)].tolist()
            stretch = [(time, *_place(path, time)) for time in (start, *inside, end)]
            gaps += [bool(knots)] + [False] * (len(stretch) - 1)
            knots += stretch
    if not knots:
        return None
    whole = Trajectory.of(knots)
    return Trajectory(whole.times, whole.x, whole.y, np.array(gaps[1:], dtype=np.bool_))


def _place(path: Trajectory, time: Micros) -> tuple[float, float]:
    place = path.position(time)
    assert place is not None, "an ns-2 path has no gap before it is switched"
    return place
