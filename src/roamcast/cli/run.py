"""One run of a scenario: in virtual time, in real time, and what became of its events; what a file can
name."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roamcast.cli import options
from roamcast.cli.group import fail
from roamcast.cli.options import PATH
from roamcast.errors import InputError

if TYPE_CHECKING:
    from roamcast.lab.run.runs import RunResult


def of_scenario(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments of a command that runs one scenario."""
    for parameter in (options.as_json, options.trace_out, options.settings, options.seed, options.scenario):
        command = parameter(command)
    return command


@click.command()
@of_scenario
@click.option(
    "--compare", metavar="A,B,…", help="Run these strategies, side by side; with --play, the first two."
)
@click.option("--play", "plays", is_flag=True, help="Write a page that plays the run, and open it.")
def simulate(compare: str | None, plays: bool, **arguments: Any) -> None:
    """Run one scenario in virtual time and print its metrics."""
    if compare is None:
        run("simulate", plays=plays, **arguments)
    else:
        run_strategies(compare, plays, **arguments)


@click.command()
@of_scenario
@click.option(
    "--traces", metavar="DIR", type=PATH, help="Keep the nodes' own traces, as live nodes write them."
)
def emulate(traces: Path | None, **arguments: Any) -> None:
    """Run one scenario in real time: real nodes in network namespaces, an emulated radio; same metrics."""
    run("emulate", **arguments, traces=traces)


@click.command()
@click.argument("kind", metavar="KIND", help="cut, heal, crash or restart, as in a scenario's [[fault]].")
@click.argument("which", metavar="A-B|N", help="A link by its two nodes, or a node.")
@click.option("--of", "folder", metavar="DIR", type=PATH, help="Which emulation, where several run.")
def fault(kind: str, which: str, folder: Path | None) -> None:
    """Cut or heal a link, crash or restart a node, of an emulation that runs on this machine."""
    from roamcast.runtime.emulate.programs import happen

    print(happen(f"{kind} {which}", folder))


def run(
    runtime: str,
    scenario: Path,
    seed: int | None,
    settings: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    plays: bool = False,
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
        show_metrics({"value": result.metrics}, title if runtime == "simulate" else f"{title}, emulated")
    if result.remark is not None:
        print(f"roamcast: {result.remark}", file=sys.stderr)
    if plays:
        show_played([result], page_of(out or Path(scenario.stem)), as_json)


def run_strategies(
    compare: str,
    plays: bool,
    scenario: Path,
    seed: int | None,
    settings: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> None:
    """The scenario under several strategies, one after the other, each with its own default options."""
    from roamcast.cli.screen import progress, show_metrics
    from roamcast.lab.run import runs
    from roamcast.scenario import load_scenario

    names = list(dict.fromkeys(name.strip() for name in compare.split(",") if name.strip()))
    if len(names) < 2:
        raise InputError("--compare", f"is {compare!r}; allowed: two or more strategies, as in tree,epidemic")
    chosen = [[*settings, f"strategy.name={name}"] for name in names]
    loaded = [load_scenario(scenario, seed=seed, overrides=one) for one in chosen]  # all, before any runs
    results = []
    for name, one in zip(names, loaded, strict=True):
        with progress(f"simulating {name}") as on_progress:
            results.append(runs.simulate(one, on_progress))
        if out is not None:
            results[-1].write(out / name)
    if as_json:
        print("\n".join(result.to_json() for result in results))
    else:
        title = f"{results[0].info.name}, seed {results[0].info.seed}"
        show_metrics({name: result.metrics for name, result in zip(names, results, strict=True)}, title)
    if plays:
        show_played(results[:2], page_of(out or Path(scenario.stem)), as_json)


@click.command()
@click.argument(
    "folders", metavar="DIR [DIR]", nargs=-1, required=True,
    help="What `simulate --out`, `emulate --out`, `collect` or `sweep` wrote; two: side by side, in step.",
)  # fmt: skip
@click.option(
    "--run", "names", metavar="NAME", multiple=True,
    help="Which run of a sweep or live trace; twice: side by side.",
)  # fmt: skip
@click.option("--event", metavar="PUBLISHER:SEQUENCE", help="Begin with this event.")
@click.option("--node", help="Begin with this node chosen, by name or number.")
@click.option("--from", "since", metavar="S", type=float, help="Leave out what was before S seconds.")
@click.option("--until", metavar="S", type=float, help="Leave out what was after S seconds.")
@click.option("--out", metavar="FILE", help="Default: beside DIR, as DIR.play.html.")
@click.option("--open/--no-open", "opens", default=None, help="Show it in a browser. Default: on a terminal.")
def play(
    folders: tuple[str, ...],
    names: tuple[str, ...],
    event: str | None,
    node: str | None,
    since: float | None,
    until: float | None,
    out: str | None,
    opens: bool | None,
) -> None:
    """Make one self-contained HTML page of a run that plays: motion, links, overlay, events, reasons."""
    from roamcast.cli.screen import open_page
    from roamcast.lab.play import Selection, play, started_at
    from roamcast.lab.play.source import open_run

    wanted = [(folder, name) for folder in folders for name in names or (None,)]
    if len(wanted) > 2:
        raise InputError("play", f"shows {len(wanted)} runs; allowed: one, or two side by side")
    runs = [open_run(folder, name) for folder, name in wanted]
    chosen = None if event is None else runs[0].event(event)
    start = started_at(runs, chosen, None if node is None else runs[0].node(node))
    target = out or page_of(folders[0])
    page = play(runs, target, Selection(since, until, chosen), start)
    print(page)
    open_page(page, opens)


def page_of(folder: Path | str) -> str:
    """Where the page of a run goes: beside its folder, which holds the trace and nothing else."""
    return f"{str(folder).rstrip('/')}.play.html"


def show_played(results: Sequence["RunResult"], page: str, quiet: bool) -> None:
    from roamcast.cli.screen import open_page
    from roamcast.lab.play import PlayedRun, play

    written = play([PlayedRun(result.info, result.tables) for result in results], page)
    print(written, file=sys.stderr if quiet else sys.stdout)
    open_page(written)


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
    from roamcast.lab.storage import Storage

    if Storage.open(folder).exists(trace_tables.RUN_FILE):
        info, read = trace_tables.read_run(folder), trace_tables.read(folder)
        result = RunResult(info, read, measure(read, info))
        if as_json:
            print(result.to_json())
        else:
            show_metrics({"value": result.metrics}, f"{info.name}: {info.strategy}, seed {info.seed}")
        return
    damaged = False
    for run in read_network(folder, wanted, since, until):
        info = run.result.info
        damaged |= run.is_damaged
        if as_json:
            print(run.result.to_json())
        else:
            show_metrics({"value": run.result.metrics}, f"{info.name}: {info.strategy}, live")
            print(f"{info.nodes} nodes, {began_text(run)}")
            print(f"not known of a live network: {', '.join(UNKNOWN_LIVE)}")
        for remark in run.remarks:
            print(f"roamcast: {remark}", file=sys.stderr)
    if damaged:
        fail("some segments could not be read; the figures are without them")


@click.command()
@click.argument(
    "folder", metavar="DIR", help="What `simulate --out`, `collect` or `sweep` wrote; a path or URI."
)
@click.option("--run", "of_run", metavar="NAME", help="Of a sweep or a live trace with several runs: which.")
@click.option("--event", metavar="PUBLISHER:SEQUENCE", help="Only this event; also shows its ways.")
@click.option("--node", help="Only deliveries to this node, by name or number.")
@click.option("--all", "lists", is_flag=True, help="List every missing delivery, not one of each reason.")
@options.as_json
def why(
    folder: str, of_run: str | None, event: str | None, node: str | None, lists: bool, as_json: bool
) -> None:
    """Explain every expected delivery that did not happen."""
    from roamcast.lab.play.source import open_run
    from roamcast.lab.why import answer, inquest

    run = open_run(folder, of_run)
    for line in run.remarks:
        print(f"roamcast: {line}", file=sys.stderr)
    wanted = None if event is None else run.published(event)
    to = None if node is None else run.node(node)
    explanations = inquest.explain(run.tables, run.info, wanted, to)
    ways = [] if wanted is None else inquest.ways(run.tables, wanted)
    if as_json:
        print(answer.to_json(explanations, ways))
    else:
        print(run.in_names(answer.to_text(explanations, ways, None if lists else 1)))


NAME = click.argument("name", metavar="[NAME]", required=False, help="Show its options too.")
MODULES = click.option(
    "--module", "modules", metavar="MODULE", multiple=True, help="Load a plug-in of this folder first."
)


@click.command()
@NAME
@MODULES
@options.as_json
def strategies(name: str | None, modules: tuple[str, ...], as_json: bool) -> None:
    """The strategies there are, plug-ins too; with a name, its options and what they mean."""
    show("strategies", name, modules, as_json)


@click.command()
@click.argument("kind", metavar="[KIND]", required=False, help="E.g. underlays, metrics.")
@NAME
@MODULES
@options.as_json
def parts(kind: str | None, name: str | None, modules: tuple[str, ...], as_json: bool) -> None:
    """Everything that a file can name: strategies, underlays, modulators, models, metrics."""
    from roamcast.parts import kinds

    if kind is None:
        print("\n".join(kinds()))
    else:
        show(kind, name, modules, as_json)


def show(kind: str, name: str | None, modules: tuple[str, ...], as_json: bool) -> None:
    from roamcast.parts import describe, to_json, to_text
    from roamcast.plugins import load_modules

    load_modules(modules, Path(), "--module")
    found = describe(kind, name)
    print(to_json(found) if as_json else to_text(found))
