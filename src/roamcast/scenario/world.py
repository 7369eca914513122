"""The scenario's world: motion, ranges, and the contact plan that every runtime plays."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from roamcast.errors import FileError, ScenarioError
from roamcast.explain import shown
from roamcast.scenario.model import NODES_MAX, RecordedTrace, Scenario, ScenarioTables
from roamcast.streams import stream
from roamcast.units import micros
from roamcast.world.contacts import ContactPlan, joined
from roamcast.world.crossings import contact_plan
from roamcast.world.formats import guess, read_contacts, read_motion
from roamcast.world.mobility import Area
from roamcast.world.trajectory import Motion
from roamcast.world.walls import segments


def motion_of(scenario: Scenario) -> Motion | None:
    """Where every node is at every time; None where the scenario gives only contacts."""
    mobility = scenario.world.mobility
    if mobility is None:
        return None
    if isinstance(mobility, RecordedTrace):
        motion = _recorded(scenario, scenario.base)
        return Motion(motion.trajectories[: scenario.nodes], motion.names[: scenario.nodes])
    random = stream(scenario.seed, "mobility")
    return mobility.motion(scenario.nodes, _area(scenario), scenario.duration, random)


def plan_of(scenario: Scenario, motion: Motion | None = None) -> ContactPlan:
    """Who hears whom and when, over the duration. `motion` saves computing it again."""
    if scenario.world.contacts is not None:
        return _given_plan(scenario, scenario.base)
    mobility = scenario.world.mobility
    if mobility is not None and not isinstance(mobility, RecordedTrace):
        random = stream(scenario.seed, "mobility")  # the same source as for the motion, from its beginning
        plan = mobility.contacts(scenario.nodes, _area(scenario), scenario.duration, random)
        if plan is not None:
            return plan
    return _computed_plan(scenario, motion, 1.0)


def sensing_plan_of(scenario: Scenario, motion: Motion | None = None) -> ContactPlan | None:
    """Who senses whom; None where that is the same as who hears whom."""
    sensing = scenario.world.radio.sensing()
    return None if sensing == 1 else _computed_plan(scenario, motion, sensing)


def _computed_plan(scenario: Scenario, motion: Motion | None, factor: float) -> ContactPlan:
    """The plan computed from the motion, with `factor` times each node's range."""
    motion = motion or motion_of(scenario)
    mobility = scenario.world.mobility
    assert motion is not None and mobility is not None
    walls = [] if isinstance(mobility, RecordedTrace) else mobility.walls(_area(scenario))
    ranges = ranges_of(scenario)
    farther = [factor * reach for reach in ranges] if isinstance(ranges, list) else factor * ranges
    return contact_plan(motion, farther, scenario.duration, segments(walls) if walls else None)


def ranges_of(scenario: Scenario) -> float | list[float]:
    """Metres: one number for all nodes, or each node's own."""
    reach = scenario.world.range
    assert reach is not None, "a contact plan has no ranges"
    if not isinstance(reach, tuple):
        return reach
    low, high = reach
    random = stream(scenario.seed, "ranges")
    return [min(low + (high - low) * random.random(), high) for _ in range(scenario.nodes)]


def nodes_in_world(tables: ScenarioTables, base: Path) -> int:
    """How many nodes there are: `world.nodes`, checked against the file where one brings them."""
    try:
        return _nodes(tables, base)
    except OSError as error:  # a name that no file can have; the readers report other errors
        name = tables.world.contacts or getattr(tables.world.mobility, "file", "")
        raise FileError(shown(name), f"cannot be read: {error.strerror}") from None


def _nodes(tables: ScenarioTables, base: Path) -> int:
    wanted = tables.world.nodes
    if tables.world.contacts is not None:
        found = _given_plan(tables, base).nodes
        if wanted is not None and found > wanted:
            raise ScenarioError(
                "world.nodes", f"is {wanted}; allowed: at least the {found} nodes of the plan"
            )
    elif isinstance(tables.world.mobility, RecordedTrace):
        recorded = _recorded(tables, base).nodes
        found = recorded if wanted is None else wanted
        if found > recorded:
            raise ScenarioError(
                "world.nodes", f"is {found}; allowed: at most the {recorded} nodes of the recording"
            )
    else:
        assert wanted is not None, "checked before"
        found = wanted
    if found > NODES_MAX:
        raise ScenarioError(
            "world.nodes", f"is missing, and the file has {found}; allowed: at most {NODES_MAX}"
        )
    return found


def _area(scenario: Scenario) -> Area:
    assert scenario.world.area is not None
    width, height = scenario.world.area
    return width, height


def _given_plan(tables: ScenarioTables, base: Path) -> ContactPlan:
    """The plan in a file, cut to the duration. Our own plans are on the scenario's clock; a recording
    begins at 0."""
    assert tables.world.contacts is not None
    duration = tables.scenario.duration
    path = base / tables.world.contacts
    format = guess.contacts_format(path) if path.is_file() else None
    plan = read_contacts(path, format or "plan", duration=duration, nodes=tables.world.nodes).plan
    begins = int(plan.start.min()) if len(plan) and format not in (None, "plan") else 0
    return joined(
        plan.nodes,
        plan.sender,
        plan.receiver,
        np.maximum(plan.start - begins, 0),
        np.minimum(plan.end - begins, micros(duration)),
        directed=plan.directed,
    )


def _recorded(tables: ScenarioTables, base: Path) -> Motion:
    """The recording, on a clock that begins at 0."""
    trace = tables.world.mobility
    assert isinstance(trace, RecordedTrace)
    path = base / trace.file
    motion = _read(_Recording(path, _fingerprint(path), trace, tables.scenario.duration))
    return motion.shifted(-motion.begins)


Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]


class _Recording(NamedTuple):
    path: Path
    fingerprint: Fingerprint  # so that a file that changes is read again
    trace: RecordedTrace
    duration: float


@lru_cache(maxsize=1)  # loading counts the nodes, and the run needs the paths: large files are read once
def _read(recording: _Recording) -> Motion:
    trace = recording.trace
    return read_motion(
        recording.path,
        trace.format,
        max_gap=trace.max_gap,
        conflict=trace.conflict,
        geographic=trace.geographic,
        duration=recording.duration,
    )


def _fingerprint(path: Path) -> Fingerprint:
    """Name, time of change and size of a file, or of each file in a folder."""
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
