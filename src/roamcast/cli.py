"""The commands. Each reads its arguments, calls one function that a test can call too, prints the answer.

Nothing heavy is imported here: `roamcast --help` answers at once. Exit codes: 0 done, 1 the work failed,
2 bad input.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from roamcast import __version__
from roamcast.errors import InputError

app = typer.Typer(
    name="roamcast",
    help="Publish/subscribe for networks that move: simulate, compare, explain.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ScenarioFile = Annotated[Path, typer.Argument(metavar="S.toml", help="The scenario file.")]
Seed = Annotated[int | None, typer.Option(help="Instead of the scenario's own seed.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a dotted key, e.g. world.nodes=50."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]


@app.command()
def simulate(
    scenario: ScenarioFile,
    seed: Seed = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the trace as Parquet; a new or empty folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one scenario in virtual time and print its metrics."""
    from roamcast.lab import runs
    from roamcast.scenario import load_scenario

    with errors_as_exit_codes():
        loaded = load_scenario(scenario, seed=seed, overrides=settings or ())
        with progress(f"simulating {loaded.scenario.name}") as on_progress:
            result = runs.simulate(loaded, on_progress)
        if out is not None:
            result.write(out)
        if as_json:
            print(result.to_json())
        else:
            show_metrics(
                result.metrics, f"{result.info.name}: {result.info.strategy}, seed {result.info.seed}"
            )


@app.command()
def why(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A trace that `simulate --out` wrote.")],
    event: Annotated[
        str | None, typer.Option(metavar="PUBLISHER:SEQUENCE", help="Only this event; also shows its ways.")
    ] = None,
    node: Annotated[int | None, typer.Option(help="Only deliveries to this node.")] = None,
    limit: Annotated[
        int, typer.Option(help="How many missing deliveries to list; the counts are of all.")
    ] = 50,
    as_json: AsJson = False,
) -> None:
    """Explain every expected delivery that did not happen."""
    from roamcast.lab import tables as trace_tables
    from roamcast.lab import why as inquest

    with errors_as_exit_codes():
        run, tables = trace_tables.read_run(folder), trace_tables.read(folder)
        wanted = None if event is None else inquest.parse_event(event)
        explanations = inquest.explain(tables, run, wanted, node)
        ways = [] if wanted is None else inquest.ways(tables, wanted)
        if as_json:
            print(inquest.to_json(explanations, ways))
        else:
            print(inquest.to_text(explanations, ways, limit))


def version(wanted: bool) -> None:
    if wanted:
        print(f"roamcast {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options that stand before the command."""


@contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """The user's faults become one line and exit code 2."""
    try:
        yield
    except InputError as error:
        print(f"roamcast: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None] | None]:
    """A bar on a terminal, silence in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def show_metrics(metrics: dict[str, float | int | None], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("metric", "value", title=title)
    table.columns[1].justify = "right"
    for name, value in metrics.items():
        if value is not None:
            table.add_row(name, str(value) if isinstance(value, int) else f"{value:.6g}")
    Console().print(table)


def main() -> None:
    app()
