"""One run in real time: what the lab calls. The work is done by processes that end with this one."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from roamcast.errors import FileError, ScenarioError
from roamcast.runtime.emulate.collect import Circumstances, collect
from roamcast.runtime.emulate.namespaces import NODES_MAX, CannotEmulateError
from roamcast.runtime.emulate.real_time import TRUSTED_DELAY
from roamcast.runtime.emulate.stage import EmulationError, Stage, write_scenario
from roamcast.scenario.model import Scenario
from roamcast.scenario.workload import Roles, roles
from roamcast.trace import Trace
from roamcast.underlay import UNDERLAYS
from roamcast.units import MILLISECOND

PREFIX = "roamcast-"  # of the folder of an emulation, among the machine's temporary ones
STOPPING = 10.0  # seconds that everything has to end after an interruption


@dataclass(frozen=True)
class EmulationResult:
    scenario: Scenario
    roles: Roles
    trace: Trace
    circumstances: Circumstances
    wall_s: float

    @property
    def remark(self) -> str | None:
        """Why the figures of this run cannot be relied on, in one line; None if they can."""
        known = self.circumstances
        remarks = []
        if max(known.play_delay, known.publish_delay) > TRUSTED_DELAY:
            played, published, trusted = (
                round(delay / MILLISECOND) for delay in (known.play_delay, known.publish_delay, TRUSTED_DELAY)
            )
            remarks.append(
                f"this machine was too slow: links and frames came {played} ms late, events were published"
                f" {published} ms late (99th percentiles; trusted: {trusted} ms)"
            )
        if known.refused:
            remarks.append(f"nodes refused {len(known.refused)} requests, the first: {known.refused[0]}")
        if known.errors:
            remarks.append(f"nodes logged {len(known.errors)} errors, the first: {known.errors[0]}")
        if known.missed:
            remarks.append(f"applications missed {known.missed} events because they read too slowly")
        return f"{'; '.join(remarks)}; do not trust the figures" if remarks else None


class Emulation:
    """A scenario that can be emulated; `ScenarioError` names the key if it cannot."""

    def __init__(self, scenario: Scenario, traces: Path | None = None, *, folder: Path | None = None) -> None:
        """`traces`: a new or empty folder in which the nodes' own segments are kept. `folder`: an empty one
        for all that nodes have while they run: `Stage(folder).socket_of(node)` is then a node's local socket,
        for a program that uses the emulated network."""
        self._scenario = scenario
        self._roles = roles(scenario)
        self._traces = traces
        self._folder = folder
        if traces is not None and traces.exists() and (not traces.is_dir() or any(traces.iterdir())):
            raise FileError(str(traces), "holds something else; allowed: a new or empty folder")
        if scenario.nodes > NODES_MAX:
            raise ScenarioError("world.nodes", f"is {scenario.nodes}; an emulation takes at most {NODES_MAX}")
        name = scenario.underlay.name
        if name is not None and UNDERLAYS.declared(name).only_simulated:
            raise ScenarioError("underlay.name", f"is {name!r}, which only a simulation can give to a node")

    def run(self, on_progress: Callable[[float], None] | None = None) -> EmulationResult:
        """Play the whole scenario. `CannotEmulateError` if this machine cannot, `EmulationError` if a part
        failed; an interruption ends every process before it goes on."""
        began = time.perf_counter()
        with nullcontext(self._folder) if self._folder else temporary_folder() as folder:
            stage = Stage(folder)
            write_scenario(self._scenario, stage.scenario)
            if self._traces is not None:
                self._traces.mkdir(parents=True, exist_ok=True)
                stage.traces.symlink_to(self._traces.resolve())
            self._conduct(stage, on_progress)
            trace, circumstances = collect(self._scenario, stage)
        return EmulationResult(self._scenario, self._roles, trace, circumstances, time.perf_counter() - began)

    def _conduct(self, stage: Stage, on_progress: Callable[[float], None] | None) -> None:
        command = [
            sys.executable,
            "-m",
            "roamcast.runtime.emulate.stage",
            str(stage.folder),
            str(os.getpid()),
        ]
        errors = stage.folder / "conductor.err"
        with errors.open("wb") as log:
            # In a session of its own: Ctrl-C reaches this process, and this process stops the others.
            conductor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        ended = False
        try:
            for word, *values in _lines(conductor):
                match word:
                    case "progress":
                        if on_progress is not None:
                            on_progress(values[0])
                    case "cannot":
                        raise CannotEmulateError(*values)
                    case "failed":
                        raise EmulationError(values[0])
                    case "done":
                        ended = True
        finally:
            _end(conductor)
        if not ended:
            said = errors.read_text(errors="replace").strip().splitlines()
            raise EmulationError(f"the conductor ended: {said[-1] if said else 'it said nothing'}")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        yield Path(name)


def _lines(conductor: "subprocess.Popen[bytes]") -> Iterator[list[Any]]:
    assert conductor.stdout is not None
    for line in conductor.stdout:
        yield msgspec.json.decode(line, type=list[Any])


def _end(conductor: "subprocess.Popen[bytes]") -> None:
    conductor.terminate()
    try:
        conductor.wait(STOPPING)
    except subprocess.TimeoutExpired:
        conductor.kill()
        conductor.wait()
    finally:
        assert conductor.stdout is not None
        conductor.stdout.close()
