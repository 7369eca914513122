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
from roamcast.errors import InputError, RoamcastError

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
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A Spark master; default: embedded, on this machine's cores."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]

DEFAULT_SOCKET = Path("roamcast.sock")
Socket = Annotated[Path, typer.Option(metavar="PATH", help="The node's socket; [clients] in its file.")]


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
    from roamcast.lab.run import runs
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
def emulate(
    scenario: ScenarioFile,
    seed: Seed = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the trace as Parquet; a new or empty folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one scenario in real time: real nodes in network namespaces, an emulated radio; same metrics."""
    from roamcast.lab.run import runs
    from roamcast.scenario import load_scenario

    with errors_as_exit_codes():
        loaded = load_scenario(scenario, seed=seed, overrides=settings or ())
        with progress(f"emulating {loaded.scenario.name}") as on_progress:
            result = runs.emulate(loaded, on_progress)
        if out is not None:
            result.write(out)
        if as_json:
            print(result.to_json())
        else:
            show_metrics(
                result.metrics,
                f"{result.info.name}: {result.info.strategy}, seed {result.info.seed}, emulated",
            )
        if result.remark is not None:
            print(f"roamcast: {result.remark}", file=sys.stderr)


@app.command()
def strategies(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show its options too.")] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--module", metavar="MODULE", help="Load a plug-in of this folder first."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The strategies there are, plug-ins too; with a name, its options and what they mean."""
    show_parts("strategies", name, modules, as_json)


@app.command()
def parts(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="e.g. underlays, metrics.")] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show its options too.")] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--module", metavar="MODULE", help="Load a plug-in of this folder first."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Everything that a file can name: strategies, underlays, modulators, models, metrics."""
    if kind is None:
        from roamcast.parts import kinds

        print("\n".join(kinds()))
    else:
        show_parts(kind, name, modules, as_json)


def show_parts(kind: str, name: str | None, modules: list[str] | None, as_json: bool) -> None:
    from roamcast.parts import describe, to_json, to_text
    from roamcast.plugins import load_modules

    with errors_as_exit_codes():
        load_modules(modules or (), Path(), "--module")
        found = describe(kind, name)
        print(to_json(found) if as_json else to_text(found))


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
    from roamcast.lab.run import tables as trace_tables
    from roamcast.lab.why import inquest

    with errors_as_exit_codes():
        run, tables = trace_tables.read_run(folder), trace_tables.read(folder)
        wanted = None if event is None else inquest.parse_event(event)
        explanations = inquest.explain(tables, run, wanted, node)
        ways = [] if wanted is None else inquest.ways(tables, wanted)
        if as_json:
            print(inquest.to_json(explanations, ways))
        else:
            print(inquest.to_text(explanations, ways, limit))


@app.command()
def sweep(
    experiment: Annotated[Path, typer.Argument(metavar="E.toml", help="The experiment file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the tables go.")],
    master: Master = None,
    resume: Annotated[bool, typer.Option(help="Run what is missing or failed in DIR.")] = False,
) -> None:
    """Run a grid of simulations as Spark tasks."""
    from roamcast.lab.sweep.experiment import load_experiment
    from roamcast.lab.sweep.progress import progress_bar
    from roamcast.lab.sweep.sweep import sweep as run

    with errors_as_exit_codes():
        loaded = load_experiment(experiment)
        with progress_bar() as on_progress:
            ended = run(loaded, out, master, resume, on_progress)
        print(f"{ended.done} of {ended.total} runs are in {out}, {ended.ran} of them from now")
        fail_if(ended.failed, f"{ended.failed} runs failed; {out}/runs says why, --resume tries them again")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A sweep's folder.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: DIR/report.html.")] = None,
) -> None:
    """Tables and plots of a sweep as one HTML file."""
    from roamcast.lab.report import report as write

    with errors_as_exit_codes():
        print(write(folder, out))


@app.command()
def reproduce(
    selection: Annotated[str | None, typer.Argument(metavar="[PAPER[/FIGURE]]", help="Default: all.")] = None,
    profile: Annotated[str, typer.Option(help="quick (minutes) or full.")] = "quick",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where sweeps and the page go.")] = Path(
        "out/reproduction"
    ),
    master: Master = None,
) -> None:
    """The papers' tables and figures, ours beside theirs."""
    from roamcast.lab.published.reproduce import reproduce as run
    from roamcast.lab.sweep.progress import progress_bars

    with errors_as_exit_codes():
        with progress_bars() as on_progress:
            ended = run(selection, profile, out, master, on_progress)
        print(ended.page)
        print(ended.to_line())
        fail_if(ended.failed, f"{ended.failed} runs failed; the same command tries them again")


@app.command()
def contacts(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="Recorded mobility, any format of docs/formats.md.")
    ],
    reach: Annotated[float, typer.Option("--range", metavar="R", help="Radio range in metres.")],
    out: Annotated[Path, typer.Option(metavar="PLAN", help="A new .parquet, .csv or .csv.gz.")],
    format: Annotated[str | None, typer.Option(help="Default: told from name and content.")] = None,
    max_gap: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds without a fix after which a node is absent.")
    ] = None,
    geographic: Annotated[bool, typer.Option(help="An FCD file holds longitude and latitude.")] = False,
    master: Master = None,
) -> None:
    """Recorded mobility to a contact plan, on Spark."""
    from roamcast.lab.recordings.contacts import contacts as run

    with errors_as_exit_codes():
        with stage_progress() as on_progress:
            found = run(
                trace,
                reach,
                out,
                format=format,
                max_gap=max_gap,
                geographic=geographic,
                master=master,
                progress=on_progress,
            )
        print(f"{found.contacts} contacts of {found.nodes} nodes, from {found.fixes} fixes, in {out}")


@app.command()
def groups(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A trace that `simulate --out` wrote, or a sweep's folder.")
    ],
    k: Annotated[str, typer.Option("--k", metavar="K", help="How many groups: 3, 1..8 or 1,2,4.")] = "1..8",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write costs and members as Parquet; a new folder.")
    ] = None,
    refresh: Annotated[float, typer.Option(metavar="S", help="Seconds between two refreshes.")] = 5.0,
    control_cost: Annotated[
        float, typer.Option(metavar="N", help="What a group's refresh costs, in deliveries.")
    ] = 10.0,
    as_json: AsJson = False,
    master: Master = None,
) -> None:
    """Which number of multicast groups would have cost the least traffic, on Spark."""
    from roamcast.lab.groups.costs import CostModel
    from roamcast.lab.groups.grouping import group_subscriptions, parse_ks

    with errors_as_exit_codes():
        model = CostModel(refresh_interval=refresh, control_cost=control_cost)
        with stage_progress() as on_progress:
            found = group_subscriptions(
                folder, ks=parse_ks(k), out=out, model=model, master=master, progress=on_progress
            )
        print(found.to_json() if as_json else found.to_text())


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where nodes put their trace files.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the table and the checkpoint go.")],
    window: Annotated[float, typer.Option(metavar="S", help="Seconds.")] = 10.0,
    once: Annotated[bool, typer.Option(help="Take what is there and stop.")] = False,
    master: Master = None,
) -> None:
    """Delivery, latency and control traffic of running nodes, by windows, as their traces come in."""
    from roamcast.lab.live.streaming import WindowScreen
    from roamcast.lab.live.streaming import watch as run

    with errors_as_exit_codes(), WindowScreen() as screen:
        run(
            folder,
            out,
            window_s=window,
            master=master,
            once=once,
            on_table=screen,
            on_refused=lambda line: print(f"roamcast: {line}", file=sys.stderr),
        )


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where tables and report go.")] = Path("out/demo"),
    master: Master = None,
) -> None:
    """The main job in small: one scenario, every strategy, through Spark, to an HTML report."""
    from rich.console import Console
    from rich.table import Table

    from roamcast.lab.sweep.demo import demo as run
    from roamcast.lab.sweep.progress import progress_bar

    with errors_as_exit_codes():
        with progress_bar() as on_progress:
            shown = run(out, master, on_progress)
        table = Table(*shown.heads)
        for row in shown.rows:
            table.add_row(*row)
        Console().print(table)
        print(f"The whole report: {shown.report}")
        fail_if(shown.failed, f"{shown.failed} runs failed; {out}/runs says why")


@app.command()
def node(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="The node's file; with --init the one to write.")
    ] = Path("roamcast.toml"),
    init: Annotated[
        bool, typer.Option("--init", help="Write a commented file with fresh keys, and stop.")
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(metavar="OTHER.toml", help="With --init: for the same network as this node."),
    ] = None,
    group_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="With --init: for the network that has this group key.")
    ] = None,
    interface: Annotated[str | None, typer.Option(metavar="NAME", help="With --init: e.g. wlan0.")] = None,
) -> None:
    """Run a live node until it is told to stop (Ctrl-C, SIGTERM)."""
    from roamcast import daemon

    with errors_as_exit_codes():
        if init:
            print(daemon.write_fresh(config, group_key=group_key, like=like, interface=interface))
        else:
            for name, given in (("--like", like), ("--group-key", group_key), ("--interface", interface)):
                if given is not None:
                    raise InputError(name, "is given without --init; allowed: only beside it")
            daemon.run(config)


@app.command()
def publish(
    topic: Annotated[str, typer.Option(help="E.g. alarm/fire.")] = "",
    payload: Annotated[str | None, typer.Option(metavar="TEXT")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The payload; - for standard input.")
    ] = None,
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="E.g. level=5; may be repeated.")
    ] = None,
    type: Annotated[str, typer.Option(help="A dotted event type.")] = "",
    lifetime: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds to keep it for absent and later subscribers.")
    ] = None,
    to: Annotated[
        list[int] | None, typer.Option(metavar="NODE", help="Only to this node; may be repeated.")
    ] = None,
    sealed: Annotated[bool, typer.Option(help="For holders of the content key only.")] = False,
    socket: Socket = DEFAULT_SOCKET,
) -> None:
    """Publish one event through the node on this device."""
    from roamcast.client import commands

    with errors_as_exit_codes():
        event = commands.publish(
            socket,
            topic=topic,
            attributes=commands.parse_attributes(attribute or []),
            payload=commands.payload_from(payload, file),
            type=type,
            lifetime=lifetime,
            to=tuple(to or ()),
            sealed=sealed,
        )
        print(f"{event.publisher}:{event.sequence}")


@app.command()
def subscribe(
    topic: Annotated[str | None, typer.Option(help="An MQTT topic filter, e.g. alarm/#.")] = None,
    sql: Annotated[str | None, typer.Option(help="An SQL condition on the attributes.")] = None,
    type: Annotated[str | None, typer.Option(help="An event type and those below it.")] = None,
    xpath: Annotated[str | None, typer.Option(help="An XPath on XML events.")] = None,
    modulator: Annotated[
        str | None, typer.Option(metavar="NAME", help="What a broker shall make of the events.")
    ] = None,
    parameters: Annotated[str, typer.Option(metavar="JSON", help="Of the modulator.")] = "{}",
    count: Annotated[int | None, typer.Option(metavar="N", help="End after so many.")] = None,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show matching events as they reach the node on this device."""
    from roamcast.client import Message, commands

    def show(message: Message) -> None:
        print(commands.to_json(message) if as_json else commands.to_line(message), flush=True)

    with errors_as_exit_codes():
        commands.subscribe(
            socket,
            show,
            topic=topic,
            sql=sql,
            type=type,
            xpath=xpath,
            count=count,
            modulator=modulator,
            parameters=parameters,
        )


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
    """The user's faults become one line and exit code 2; work that failed, one line and exit code 1."""
    try:
        yield
    except RoamcastError as error:
        print(f"roamcast: {error}", file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, InputError) else 1) from error
    except KeyboardInterrupt:
        print("roamcast: interrupted", file=sys.stderr)
        raise typer.Exit(1) from None


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


@contextmanager
def stage_progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar per stage of a Spark job on a terminal, silence in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    with Bars(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield show


def fail_if(failed: int, line: str) -> None:
    """The work itself failed in part: one line and exit code 1."""
    if failed:
        print(f"roamcast: {line}", file=sys.stderr)
        raise typer.Exit(1)


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
