"""Many runs and recordings: what goes through Spark, and what shows it."""

import sys
import textwrap
from pathlib import Path

import click

from roamcast.cli import options
from roamcast.cli.group import fail
from roamcast.cli.options import PATH


@click.command()
@click.argument("experiment", metavar="E.toml", type=PATH, help="The experiment file.")
@click.option("--out", metavar="DIR", required=True, help="Where the tables go: a folder or a URI.")
@options.spark
@click.option("--resume/--no-resume", help="Run what is missing, failed or damaged in DIR.")
@click.option("--anew", is_flag=True, help="Run again what other code has run in DIR.")
@click.option(
    "--verify",
    type=click.Choice(["sample", "all", "none"]),
    default="sample",
    help="Of how many runs Spark's SQL measures the tables again. Default: a sample.",
)
@click.option(
    "--until-half-width",
    metavar="W",
    type=float,
    help="Add seeds to each cell until its 95% interval is at most ± W.",
)
@click.option("--of", metavar="METRIC", default="delivery_ratio", help="The metric of that interval.")
@click.option("--seeds-max", metavar="N", type=int, default=100, help="The most seeds that a cell gets.")
def sweep(
    experiment: Path,
    out: str,
    master: str | None,
    resume: bool,
    anew: bool,
    verify: str,
    until_half_width: float | None,
    of: str,
    seeds_max: int,
) -> None:
    """Run a grid of simulations as Spark tasks."""
    from roamcast.cli.screen import progress_of_runs
    from roamcast.lab.sweep.experiment import load_experiment
    from roamcast.lab.sweep.sweep import Replication
    from roamcast.lab.sweep.sweep import sweep as run

    loaded = load_experiment(experiment)
    replication = None if until_half_width is None else Replication(until_half_width, of, seeds_max)
    with progress_of_runs() as on_progress:
        ended = run(loaded, out, master, resume, on_progress, verify, replication, anew)
    for line in ended.mended:
        print(f"roamcast: {line}; set aside and run again", file=sys.stderr)
    print(ended.to_line(out))
    for line in ended.wide:
        print(f"too wide: {line}")
    if ended.failed:
        fail(f"{ended.failed} runs failed; {out}/runs says why, --resume tries them again")


@click.command()
@click.argument("folder", metavar="DIR", help="A sweep's folder; the sweep may still be running.")
@click.option("--out", metavar="FILE", help="Default: DIR/report.html.")
@click.option(
    "--play/--no-play", "plays", default=True, help="Also a page that plays for one run of each cell."
)
@click.option(
    "--figures", metavar="DIR", type=PATH, help="Also write each figure as SVG and its data as CSV here."
)
def report(folder: str, out: str | None, plays: bool, figures: Path | None) -> None:
    """The verdict on a sweep, its figures and tables, as one HTML file."""
    from roamcast.cli.screen import open_page, stage_progress
    from roamcast.lab.report import report as write

    with stage_progress() as on_progress:
        written = write(folder, out, plays=plays, figures=figures, progress=on_progress)
    print(written)
    open_page(written)


@click.command()
@click.argument("selection", metavar="[PAPER[/FIGURE]]", required=False, help="Default: all.")
@click.option("--profile", default="quick", help="quick (20 minutes for all on 2 cores) or full (90).")
@click.option("--seed", metavar="N", type=int, help="The first seed. Default: each figure's own.")
@click.option(
    "--seeds", metavar="K", type=int, help="At most so many seeds in a cell. Default: the profile's."
)
@click.option(
    "--out", metavar="DIR", default="out/reproduction", help="Where sweeps and page go: a folder or a URI."
)
@click.option("--resume", is_flag=True, help="Go on with what is in DIR.")
@click.option("--anew", is_flag=True, help="Run again what other code has run in DIR.")
@click.option("--page", metavar="FILE", type=PATH, help="Write the results as Markdown here, too.")
@click.option("--counts", metavar="FILE", type=PATH, help="Write the counts by work between its markers.")
@click.option(
    "--beside",
    metavar="FILE",
    type=PATH,
    multiple=True,
    help="A reproduction.json of an earlier call, for page and counts; repeatable.",
)
@options.spark
def reproduce(
    selection: str | None,
    profile: str,
    seed: int | None,
    seeds: int | None,
    out: str,
    resume: bool,
    anew: bool,
    page: Path | None,
    counts: Path | None,
    beside: tuple[Path, ...],
    master: str | None,
) -> None:
    """The papers' tables and figures, ours beside theirs."""
    from roamcast.cli.screen import show_table, sweep_progress
    from roamcast.lab.published.reproduce import reproduce as run

    with sweep_progress() as on_progress:
        ended = run(
            selection,
            profile,
            out,
            master,
            on_progress,
            seed=seed,
            seeds=seeds,
            resume=resume,
            anew=anew,
            tell=click.echo,
            results_page=page,
            counts_page=counts,
            beside=beside,
        )
    show_table(*ended.counts)
    print(ended.page)
    print(ended.to_line())
    if ended.failed:
        fail(f"{ended.failed} runs failed; --resume tries them again")


@click.command()
@click.option("--profile", default="quick", help="quick (3 seeds, minutes) or full (10).")
@click.option("--seed", metavar="N", default=1, help="The first seed.", show_default=True)
@click.option(
    "--enter", metavar="FILE", type=PATH, multiple=True, help="Entries from outside, a TOML file; repeatable."
)
@click.option("--out", metavar="DIR", default="out/league", help="Where runs and page go: a folder or a URI.")
@click.option("--page", metavar="FILE", type=PATH, help="Write the page as Markdown here, too.")
@click.option("--verdict", metavar="FILE", type=PATH, help="Write the verdict between its markers.")
@click.option("--anew", is_flag=True, help="Run again what other code has run in DIR.")
@options.spark
def league(
    profile: str,
    seed: int,
    enter: tuple[Path, ...],
    out: str,
    page: Path | None,
    verdict: Path | None,
    anew: bool,
    master: str | None,
) -> None:
    """Every strategy in the same dozen scenarios: who wins where, at what cost."""
    from roamcast.cli.screen import columns_of_terminal, progress_of_runs, show_table
    from roamcast.lab.league.league import league as run

    with progress_of_runs() as on_progress:
        ended = run(profile, out, enter, page, master, on_progress, anew, seed, verdict)
    show_table(*ended.leaders)
    print("\n".join(textwrap.wrap(ended.to_decide, columns_of_terminal(), break_on_hyphens=False)))
    show_table(*ended.ranks)
    print(ended.page)
    if ended.failed:
        fail(f"{ended.failed} runs failed; the same command tries them again")


@click.command()
@click.argument(
    "trace", metavar="TRACE", help="Recorded mobility, any format of docs/study/formats.md; a path or URI."
)
@click.option("--range", "reach", metavar="R", type=float, required=True, help="Radio range in metres.")
@click.option("--out", metavar="PLAN", required=True, help="A new .parquet, .csv or .csv.gz; a path or URI.")
@click.option("--format", help="The format; default: recognised from name and content.")
@click.option(
    "--max-gap", metavar="S", type=float, help="Seconds without a fix after which a node is absent."
)
@click.option("--geographic/--no-geographic", help="An FCD file holds longitude and latitude.")
@options.spark
def contacts(
    trace: str,
    reach: float,
    out: str,
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
    "folder", metavar="DIR", help="What `simulate --out`, `sweep` or `collect` wrote; a path or URI."
)
@click.option("--k", metavar="K", default="1..8", help="How many groups: 3, 1..8 or 1,2,4.")
@click.option("--out", metavar="DIR", help="Write costs and members as Parquet; a new folder or URI.")
@click.option("--refresh", metavar="S", type=float, default=5.0, help="Seconds between two refreshes.")
@click.option(
    "--control-cost",
    metavar="N",
    type=float,
    default=10.0,
    help="What a group's refresh costs, in deliveries.",
)
@options.as_json
@options.spark
def groups(
    folder: str,
    k: str,
    out: str | None,
    refresh: float,
    control_cost: float,
    as_json: bool,
    master: str | None,
) -> None:
    """Which number of multicast groups would have cost the least traffic, on Spark."""
    from roamcast.cli.screen import stage_progress
    from roamcast.lab.groups.grouping import CostModel, group_subscriptions, parse_ks

    model = CostModel(refresh_interval=refresh, control_cost=control_cost)
    with stage_progress() as on_progress:
        found = group_subscriptions(
            folder, ks=parse_ks(k), out=out, model=model, master=master, progress=on_progress
        )
    print(found.to_json() if as_json else found.to_text())


@click.command()
@click.option("--out", metavar="DIR", default="out/demo", help="Where tables and report go: folder or URI.")
@options.spark
def demo(out: str, master: str | None) -> None:
    """The main job in small: one scenario, every strategy, through Spark, to an HTML report."""
    from roamcast.cli.screen import columns_of_terminal, open_page, progress_of_runs, show_table
    from roamcast.lab.sweep.demo import demo as run

    with progress_of_runs() as on_progress:
        shown = run(out, master, on_progress)
    show_table(shown.heads, shown.rows)
    for sentence in shown.verdict:
        print("\n".join(textwrap.wrap(sentence, columns_of_terminal(), break_on_hyphens=False)))
    print(f"The whole report, with runs that play: {shown.report}")
    open_page(shown.report)
    if shown.player is not None:
        print(f"A run of the one that serves best, as it plays: {shown.player}")
        open_page(shown.player)
    if shown.failed:
        fail(f"{shown.failed} runs failed; {out}/runs says why")
