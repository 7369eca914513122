"""One run, from scenario to tables and metrics. `simulate` the command and every sweep call this."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from roamcast.lab.expected import expected, sample_paths
from roamcast.lab.metrics import Figure, measure
from roamcast.lab.overlay_graph import overlay_health
from roamcast.lab.tables import RunInfo, Tables, tables, write
from roamcast.runtime.sim import Simulation
from roamcast.scenario import Scenario
from roamcast.trace import (
    Expected,
    FaultHappened,
    LinkChanged,
    OverlayChanged,
    OverlayJudged,
    PathsSampled,
)


@dataclass(frozen=True)
class RunResult:
    info: RunInfo
    tables: Tables
    metrics: dict[str, Figure]

    def to_json(self) -> str:
        """What `--json` prints: the run and its metrics, nothing else."""
        run = msgspec.to_builtins(self.info)
        return msgspec.json.encode({"run": run, "metrics": self.metrics}).decode()

    def write(self, folder: Path) -> None:
        """The trace as Parquet; the folder must be new, empty, or of this same run."""
        write(self.tables, self.info, folder)


def simulate(scenario: Scenario, on_progress: Callable[[float], None] | None = None) -> RunResult:
    """Run a scenario in virtual time and measure it."""
    result = Simulation(scenario).run(on_progress)
    trace = result.trace
    trace.records[Expected].extend(expected(trace))
    trace.records[PathsSampled].extend(
        sample_paths(
            trace.of(LinkChanged),
            trace.of(FaultHappened),
            result.roles.brokers,
            scenario.nodes,
            scenario.warmup,
            scenario.duration,
        )
    )
    changes = trace.of(OverlayChanged)
    if any(change.change == "link_up" for change in changes):
        health = overlay_health(
            changes,
            trace.of(LinkChanged),
            trace.of(FaultHappened),
            nodes=scenario.nodes,
            warmup=scenario.warmup,
            duration=scenario.duration,
        )
        trace.add(OverlayJudged(health.cycles, health.excess_partitions))
    info = RunInfo(
        name=scenario.scenario.name,
        strategy=scenario.strategy.name,
        seed=scenario.seed,
        nodes=scenario.nodes,
        duration=scenario.duration,
        warmup=scenario.warmup,
        brokers=tuple(result.roles.brokers),
        sim_events=result.sim_events,
        wall_s=result.wall_s,
        scenario=scenario.to_dict(),
    )
    made = tables(trace)
    return RunResult(info, made, measure(made, info))
