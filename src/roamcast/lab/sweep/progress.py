"""A sweep's progress on a terminal; nothing in a pipe."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from roamcast.lab.sweep.sweep import Progress


@contextmanager
def progress_bar(
    name: str = "runs", console: Console | None = None
) -> Iterator[Callable[[Progress], None] | None]:
    """What to hand to `sweep` as `progress`. On standard error, so that output stays clean."""
    with progress_bars(console) as show:
        yield None if show is None else lambda progress: show(name, progress)


@contextmanager
def progress_bars(console: Console | None = None) -> Iterator[Callable[[str, Progress], None] | None]:
    """The same for several sweeps, one after the other: each gets a bar under its name."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        TextColumn("{task.fields[left]}"),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, progress: Progress) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=None, failed="", left="")
            failed = f"[red]{progress.failed} failed" if progress.failed else ""
            bars.update(
                tasks[name],
                completed=progress.done,
                total=progress.total,
                failed=failed,
                left=_left(progress),
            )

        yield show


def _left(progress: Progress) -> str:
    if progress.seconds_left is None:
        return ""
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    return f"{minutes}:{seconds:02d} left"
