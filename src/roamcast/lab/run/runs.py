"""One run, from scenario to tables and metrics. The commands `simulate` and `emulate` and every sweep call
this; all runtimes are measured in the same way."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from roamcast.lab.run.expected import expected, reached, sample_paths
from roamcast.lab.run.limit import limits
from roamcast.lab.run.metrics import NOTHING_BESIDE, Figure, StudyMetrics, measure
from roamcast.lab.run.overlay_graph import overlay_health
from roamcast.lab.run.tables import Derived, RunInfo, Tables, tables, write
from roamcast.runtime.sim import Simulation, SimulationResult
from roamcast.scenario import Scenario
from roamcast.scenario.workload import Roles
from roamcast.trace import FaultHappened, LinkChanged, OverlayChanged, PathsSampled, Trace, Transmitted
from roamcast.units import Micros


@dataclass(frozen=True)
class RunResult:
    info: RunInfo
    tables: Tables
    metrics: dict[str, Figure]
    remark: str | None = None  # what to say beside the figures, in one line

    def to_json(self) -> str:
        """What `--json` prints: the run and its metrics, nothing else."""
        run = msgspec.to_builtins(self.info)
        return msgspec.json.encode({"run": run, "metrics": self.metrics}).decode()

    def write(self, folder: Path) -> None:
        """The trace as Parquet; the folder must be new, empty, or of this same run."""
        write(self.tables, self.info, folder)


def simulate(scenario: Scenario, on_progress: Callable[[float], None] | None = None) -> RunResult:
    """Run a scenario in virtual time and measure it."""
    return simulated(Simulation(scenario).run(on_progress))


def simulated(result: SimulationResult, beside: StudyMetrics = NOTHING_BESIDE) -> RunResult:
    """Measure what was simulated."""
    scenario = result.scenario
    info = run_info(scenario, result.roles, runtime="sim", sim_events=result.sim_events, wall_s=result.wall_s)
    return measured(scenario, result.trace, info, beside=beside)


def emulate(
    scenario: Scenario, on_progress: Callable[[float], None] | None = None, traces: Path | None = None
) -> RunResult:
    """Run a scenario in real time, on network namespaces with real nodes, and measure it likewise. In the
    folder `traces`, if given, the nodes' own segments are kept."""
    from roamcast.runtime.emulate.emulation import Emulation  # sweeps, in their many processes, never need it

    result = Emulation(scenario, traces).run(on_progress)
    delay = result.circumstances.play_delay
    info = run_info(scenario, result.roles, runtime="emulate", wall_s=result.wall_s, play_delay=delay)
    return measured(scenario, result.trace, info, result.remark)


def measured(
    scenario: Scenario,
    trace: Trace,
    info: RunInfo,
    remark: str | None = None,
    beside: StudyMetrics = NOTHING_BESIDE,
) -> RunResult:
    """Ground truth, tables and metrics of a trace, whichever runtime wrote it."""
    truth = expected(trace)
    derived: list[Derived] = [
        *truth,
        *reached(trace.of(Transmitted), truth),
        *limits(trace, truth, info),
    ]
    trace.records[PathsSampled].extend(
        sample_paths(
            trace.of(LinkChanged),
            trace.of(FaultHappened),
            info.brokers,
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
        derived.append(health)
    made = tables(trace, derived)
    return RunResult(info, made, measure(made, info, beside), remark)


def run_info(
    scenario: Scenario,
    roles: Roles,
    *,
    runtime: str,
    wall_s: float,
    sim_events: int | None = None,
    play_delay: Micros | None = None,
) -> RunInfo:
    return RunInfo(
        name=scenario.scenario.name,
        strategy=scenario.strategy.name,
        seed=scenario.seed,
        nodes=scenario.nodes,
        duration=scenario.duration,
        warmup=scenario.warmup,
        brokers=tuple(roles.brokers),
        runtime=runtime,
        sim_events=sim_events,
        wall_s=wall_s,
        play_delay=play_delay,
        scenario=scenario.to_dict(),
    )
