"""Tables and progress bars of the laboratory's commands."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None] | None]:
    """A bar on a terminal, silence in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def stage_progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar per stage of a Spark job on a terminal, silence in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield show


def show_metrics(metrics: dict[str, float | int | None], title: str) -> None:
    table = Table("metric", "value", title=title)
    table.columns[1].justify = "right"
    for name, value in metrics.items():
        if value is not None:
            table.add_row(name, str(value) if isinstance(value, int) else f"{value:.6g}")
    Console().print(table)


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
