"""Many runs and recordings: what goes through Spark, and what shows it."""

import sys
from pathlib import Path

import click

from roamcast.cli import options
from roamcast.cli.group import fail
from roamcast.cli.options import PATH


@click.command()
@click.argument("experiment", metavar="E.toml", type=PATH, help="The experiment file.")
@click.option("--out", metavar="DIR", type=PATH, required=True, help="Where the tables go.")
@options.master
@click.option("--resume/--no-resume", help="Run what is missing or failed in DIR.")
def sweep(experiment: Path, out: Path, master: str | None, resume: bool) -> None:
    """Run a grid of simulations as Spark tasks."""
    from roamcast.lab.sweep.experiment import load_experiment
    from roamcast.lab.sweep.progress import progress_bar
    from roamcast.lab.sweep.sweep import sweep as run

    loaded = load_experiment(experiment)
    with progress_bar() as on_progress:
        ended = run(loaded, out, master, resume, on_progress)
    print(f"{ended.done} of {ended.total} runs are in {out}, {ended.ran} of them from now")
    if ended.failed:
        fail(f"{ended.failed} runs failed; {out}/runs says why, --resume tries them again")


@click.command()
@click.argument("folder", metavar="DIR", type=PATH, help="A sweep's folder.")
@click.option("--out", metavar="FILE", type=PATH, help="Default: DIR/report.html.")
def report(folder: Path, out: Path | None) -> None:
    """Tables and plots of a sweep as one HTML file."""
    from roamcast.lab.report import report as write

    print(write(folder, out))


@click.command()
@click.argument("selection", metavar="[PAPER[/FIGURE]]", required=False, help="Default: all.")
@click.option("--profile", default="quick", help="quick (minutes) or full.")
@click.option(
    "--out", metavar="DIR", type=PATH, default=Path("out/reproduction"), help="Where sweeps and the page go."
)
@options.master
def reproduce(selection: str | None, profile: str, out: Path, master: str | None) -> None:
    """The papers' tables and figures, ours beside theirs."""
    from roamcast.lab.published.reproduce import reproduce as run
    from roamcast.lab.sweep.progress import progress_bars

    with progress_bars() as on_progress:
        ended = run(selection, profile, out, master, on_progress)
    print(ended.page)
    print(ended.to_line())
    if ended.failed:
        fail(f"{ended.failed} runs failed; the same command tries them again")


@click.command()
@click.argument(
    "trace", metavar="TRACE", type=PATH, help="Recorded mobility, any format of docs/study/formats.md."
)
@click.option("--range", "reach", metavar="R", type=float, required=True, help="Radio range in metres.")
@click.option("--out", metavar="PLAN", type=PATH, required=True, help="A new .parquet, .csv or .csv.gz.")
@click.option("--format", help="Default: told from name and content.")
@click.option(
    "--max-gap", metavar="S", type=float, help="Seconds without a fix after which a node is absent."
)
@click.option("--geographic/--no-geographic", help="An FCD file holds longitude and latitude.")
@options.master
def contacts(
    trace: Path,
    reach: float,
    out: Path,
    format: str | None,
    max_gap: float | None,
    geographic: bool,
    master: str | None,
) -> None:
    """Recorded mobility to a contact plan, on Spark."""
    from roamcast.cli.screen import stage_progress
    from roamcast.lab.recordings.contacts import contacts as run

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


@click.command()
@click.argument(
    "folder", metavar="DIR", type=PATH, help="A trace that `simulate --out` wrote, or a sweep's folder."
)
@click.option("--k", metavar="K", default="1..8", help="How many groups: 3, 1..8 or 1,2,4.")
@click.option("--out", metavar="DIR", type=PATH, help="Write costs and members as Parquet; a new folder.")
@click.option("--refresh", metavar="S", type=float, default=5.0, help="Seconds between two refreshes.")
@click.option(
    "--control-cost",
    metavar="N",
    type=float,
    default=10.0,
    help="What a group's refresh costs, in deliveries.",
)
@options.as_json
@options.master
def groups(
    folder: Path,
    k: str,
    out: Path | None,
    refresh: float,
    control_cost: float,
    as_json: bool,
    master: str | None,
) -> None:
    """Which number of multicast groups would have cost the least traffic, on Spark."""
    from roamcast.cli.screen import stage_progress
    from roamcast.lab.groups.costs import CostModel
    from roamcast.lab.groups.grouping import group_subscriptions, parse_ks

    model = CostModel(refresh_interval=refresh, control_cost=control_cost)
    with stage_progress() as on_progress:
        found = group_subscriptions(
            folder, ks=parse_ks(k), out=out, model=model, master=master, progress=on_progress
        )
    print(found.to_json() if as_json else found.to_text())


@click.command()
@click.argument("folder", metavar="DIR", type=PATH, help="Where nodes put their trace files.")
@click.option("--out", metavar="DIR", type=PATH, required=True, help="Where the table and the checkpoint go.")
@click.option("--window", metavar="S", type=float, default=10.0, help="Seconds.")
@click.option("--once/--no-once", help="Take what is there and stop.")
@options.master
def watch(folder: Path, out: Path, window: float, once: bool, master: str | None) -> None:
    """Delivery, latency and control traffic of running nodes, by windows, as their traces come in."""
    from roamcast.lab.live.screen import WindowScreen
    from roamcast.lab.live.streaming import watch as run

    with WindowScreen() as screen:
        run(
            folder,
            out,
            window_s=window,
            master=master,
            once=once,
            on_table=screen,
            on_refused=lambda line: print(f"roamcast: {line}", file=sys.stderr),
        )


@click.command()
@click.option("--out", metavar="DIR", type=PATH, default=Path("out/demo"), help="Where tables and report go.")
@options.master
def demo(out: Path, master: str | None) -> None:
    """The main job in small: one scenario, every strategy, through Spark, to an HTML report."""
    from roamcast.cli.screen import show_table
    from roamcast.lab.sweep.demo import demo as run
    from roamcast.lab.sweep.progress import progress_bar

    with progress_bar() as on_progress:
        shown = run(out, master, on_progress)
    show_table(shown.heads, shown.rows)
    print(f"The whole report: {shown.report}")
    if shown.failed:
        fail(f"{shown.failed} runs failed; {out}/runs says why")
