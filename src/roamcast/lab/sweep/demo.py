"""`roamcast demo`: a small sweep of every strategy over one scenario, on Spark, with a report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from roamcast.lab.report import report
from roamcast.lab.report.layout import layout
from roamcast.lab.report.numbers import number
from roamcast.lab.report.sections import in_words, run_of_the_winner
from roamcast.lab.report.verdict import octets_per_delivery
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.lab.sweep.results import Results, read_results
from roamcast.lab.sweep.summary import SampleMean, spread
from roamcast.lab.sweep.sweep import Progress, sweep
from roamcast.scenario import read_tables
from roamcast.strategy import STRATEGIES

SCENARIO = Path(__file__).with_name("demo.toml")
AREAS = [[400.0, 400.0], [600.0, 600.0], [800.0, 800.0]]  # from dense to partitioned
REPLICATIONS = 3


@dataclass(frozen=True)
class Demonstration:
    """What the demo found, for the terminal: a short table, the verdict and the path of the report."""

    heads: list[str]
    rows: list[list[str]]
    verdict: list[str]  # sentences
    failed: int  # runs
    report: str  # its file
    player: str | None  # the page of a run of the winner


def demo(
    out: Storage | Path | str,
    master: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Demonstration:
    """Sweep into `out` and write its report there. What an earlier call of the same code finished is not run
    again."""
    ended = sweep(demo_experiment(), out, master=master, resume=True, progress=progress, anew=True)
    written = report(out, plays=True)
    results = read_results(out)
    heads, rows = short_table(results)
    run = run_of_the_winner(results)
    player = None if run is None else Storage.open(out).name(f"play/{run}.html")
    return Demonstration(heads, rows, in_words(results), ended.failed, written, player)


def demo_experiment() -> Experiment:
    return experiment_from(
        "demo",
        read_tables(SCENARIO),
        {"strategy.name": STRATEGIES.own_names(), "world.area": AREAS},
        replications=REPLICATIONS,
        scenario_source=str(SCENARIO),
    )


def short_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """A row per cell: its axis values, then what is most asked for, in 80 columns."""
    shown = layout(results.description.axes)
    rows = []
    for cell, indices in enumerate(shown.cells):
        labels = [axis.labels[indices[axis.key]].replace(" × ", "×") for axis in shown.axes.values()]
        delivery, attainable, latency, hops = (
            spread(list(results.values(name, cell).values()))
            for name in ("delivery_ratio", "delivery_of_limit", "latency_p50", "hops_mean")
        )
        cost = spread(list(octets_per_delivery(results, cell).values()))
        figures = [
            _share(delivery),
            _share(attainable),
            number(None if latency.mean is None else 1000 * latency.mean, 3),
            number(hops.mean, 3),
            number(cost.mean, 3),
        ]
        rows.append([*labels, *figures])
    axes = [f"{axis.key.rpartition('.')[2]}\n{axis.unit}" for axis in shown.axes.values()]
    heads = [head.replace("name\n", "strategy\n") for head in axes]
    return [
        *heads,
        "delivered\nof all",
        "delivered\nof attainable",
        "latency\nms (p50)",
        "hops\nmean",
        "octets/\ndelivery",
    ], rows


def _share(found: SampleMean) -> str:
    """`0.912 ±0.013`"""
    if found.mean is None:
        return "–"
    half = "" if found.ci_high is None else f" ±{found.ci_high - found.mean:.3f}"
    return f"{found.mean:.3f}{half}"
