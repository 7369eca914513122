"""One run of a scenario: in virtual time, in real time, and what became of its events."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from roamcast.cli import options
from roamcast.cli.group import fail
from roamcast.cli.options import PATH


def of_scenario(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments of a command that runs one scenario."""
    for parameter in (options.as_json, options.trace_out, options.settings, options.seed, options.scenario):
        command = parameter(command)
    return command


@click.command()
@of_scenario
def simulate(**arguments: Any) -> None:
    """Run one scenario in virtual time and print its metrics."""
    run("simulate", **arguments)


@click.command()
@of_scenario
@click.option(
    "--traces", metavar="DIR", type=PATH, help="Keep the nodes' own traces, as live nodes write them."
)
def emulate(traces: Path | None, **arguments: Any) -> None:
    """Run one scenario in real time: real nodes in network namespaces, an emulated radio; same metrics."""
    run("emulate", **arguments, traces=traces)


def run(
    runtime: str,
    scenario: Path,
    seed: int | None,
    settings: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    **more: Any,
) -> None:
    from roamcast.cli.screen import progress, show_metrics
    from roamcast.lab.run import runs
    from roamcast.scenario import load_scenario

    loaded = load_scenario(scenario, seed=seed, overrides=settings)
    with progress(f"{runtime.removesuffix('e')}ing {loaded.scenario.name}") as on_progress:
        result = getattr(runs, runtime)(loaded, on_progress, **more)
    if out is not None:
        result.write(out)
    if as_json:
        print(result.to_json())
    else:
        title = f"{result.info.name}: {result.info.strategy}, seed {result.info.seed}"
        show_metrics(result.metrics, title if runtime == "simulate" else f"{title}, emulated")
    if result.remark is not None:
        print(f"roamcast: {result.remark}", file=sys.stderr)


@click.command()
@click.argument("folder", metavar="DIR", help="What `collect` or `simulate --out` wrote.")
@click.option("--run", "wanted", metavar="NAME", help="Only this run of a live trace; default: all.")
@click.option("--since", metavar="S", type=float, help="Live: from S seconds after the beginning on.")
@click.option("--until", metavar="S", type=float, help="Live: up to S seconds after the beginning.")
@options.as_json
def metrics(folder: str, wanted: str | None, since: float | None, until: float | None, as_json: bool) -> None:
    """The metrics of a recorded run: of a live network's collected traces, or of a simulation."""
    from roamcast.cli.screen import show_metrics
    from roamcast.lab.live.network import UNKNOWN_LIVE, began_text, read_network
    from roamcast.lab.run import tables as trace_tables
    from roamcast.lab.run.metrics import measure
    from roamcast.lab.run.runs import RunResult

    if (Path(folder) / trace_tables.RUN_FILE).exists():
        info, read = trace_tables.read_run(Path(folder)), trace_tables.read(Path(folder))
        result = RunResult(info, read, measure(read, info))
        if as_json:
            print(result.to_json())
        else:
            show_metrics(result.metrics, f"{info.name}: {info.strategy}, seed {info.seed}")
        return
    damaged = False
    for run in read_network(folder, wanted, since, until):
        info = run.result.info
        damaged |= run.is_damaged
        if as_json:
            print(run.result.to_json())
        else:
            show_metrics(run.result.metrics, f"{info.name}: {info.strategy}, live")
            print(f"{info.nodes} nodes, {began_text(run)}")
            print(f"not known of a live network: {', '.join(UNKNOWN_LIVE)}")
        for remark in run.remarks:
            print(f"roamcast: {remark}", file=sys.stderr)
    if damaged:
        fail("some segments could not be read; the figures are without them")


@click.command()
@click.argument("folder", metavar="DIR", type=PATH, help="What `simulate --out` or `collect` wrote.")
@click.option("--run", "of_run", metavar="NAME", help="Of a live trace with several runs: which.")
@click.option("--event", metavar="PUBLISHER:SEQUENCE", help="Only this event; also shows its ways.")
@click.option("--node", type=int, help="Only deliveries to this node.")
@click.option(
    "--limit", type=int, default=50, help="How many missing deliveries to list; the counts are of all."
)
@options.as_json
def why(
    folder: Path, of_run: str | None, event: str | None, node: int | None, limit: int, as_json: bool
) -> None:
    """Explain every expected delivery that did not happen."""
    from roamcast.lab.live.network import began_text, read_one
    from roamcast.lab.run import tables as trace_tables
    from roamcast.lab.why import answer, inquest

    if any(folder.rglob("*.trace")):
        live = read_one(str(folder), of_run)
        run, tables = live.result.info, live.result.tables
        for line in (began_text(live), *live.remarks):
            print(f"roamcast: {line}", file=sys.stderr)
    else:
        run, tables = trace_tables.read_run(folder), trace_tables.read(folder)
    wanted = None if event is None else answer.parse_event(event)
    explanations = inquest.explain(tables, run, wanted, node)
    ways = [] if wanted is None else inquest.ways(tables, wanted)
    if as_json:
        print(answer.to_json(explanations, ways))
    else:
        print(answer.to_text(explanations, ways, limit))
