"""One run of a scenario: in virtual time, in real time, and what became of its events."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from roamcast.cli import options
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
def emulate(**arguments: Any) -> None:
    """Run one scenario in real time: real nodes in network namespaces, an emulated radio; same metrics."""
    run("emulate", **arguments)


def run(
    runtime: str, scenario: Path, seed: int | None, settings: tuple[str, ...], out: Path | None, as_json: bool
) -> None:
    from roamcast.cli.screen import progress, show_metrics
    from roamcast.lab.run import runs
    from roamcast.scenario import load_scenario

    loaded = load_scenario(scenario, seed=seed, overrides=settings)
    with progress(f"{runtime.removesuffix('e')}ing {loaded.scenario.name}") as on_progress:
        result = getattr(runs, runtime)(loaded, on_progress)
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
@click.argument("folder", metavar="DIR", type=PATH, help="A trace that `simulate --out` wrote.")
@click.option("--event", metavar="PUBLISHER:SEQUENCE", help="Only this event; also shows its ways.")
@click.option("--node", type=int, help="Only deliveries to this node.")
@click.option(
    "--limit", type=int, default=50, help="How many missing deliveries to list; the counts are of all."
)
@options.as_json
def why(folder: Path, event: str | None, node: int | None, limit: int, as_json: bool) -> None:
    """Explain every expected delivery that did not happen."""
    from roamcast.lab.run import tables as trace_tables
    from roamcast.lab.why import answer, inquest

    run, tables = trace_tables.read_run(folder), trace_tables.read(folder)
    wanted = None if event is None else answer.parse_event(event)
    explanations = inquest.explain(tables, run, wanted, node)
    ways = [] if wanted is None else inquest.ways(tables, wanted)
    if as_json:
        print(answer.to_json(explanations, ways))
    else:
        print(answer.to_text(explanations, ways, limit))
