"""Tables and progress bars of the laboratory's commands."""

import os
import shutil
import sys
import webbrowser
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TaskID, TextColumn

from roamcast.columns import GAP, in_columns

if TYPE_CHECKING:
    from roamcast.lab.run.metrics import Figure
    from roamcast.lab.sweep.sweep import Progress as SweepProgress


@contextmanager
def stage_progress(
    *columns: ProgressColumn, console: Console | None = None
) -> Iterator[Callable[..., None] | None]:
    """What to call with a stage's name, what of it is done, and its total: a bar per stage on a terminal,
    silence in a pipe. On standard error, so that output stays clean. `columns`: instead of the usual ones."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: float, total: float, **fields: Any) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, **fields)
            bars.update(tasks[stage], completed=done, total=total, **fields)

        yield show


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None] | None]:
    """The same for one stage, by the share that is done."""
    with stage_progress() as show:
        yield None if show is None else lambda share: show(what, share, 1.0)


@contextmanager
def sweep_progress(
    console: Console | None = None,
) -> Iterator[Callable[[str, "SweepProgress"], None] | None]:
    """The same for sweeps, each under its name: runs done and failed, and the time left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        TextColumn("{task.fields[left]}"),
    )
    with stage_progress(*columns, console=console) as show:
        yield (
            None
            if show is None
            else lambda name, now: show(
                name,
                now.done,
                now.total,
                failed=f"[red]{now.failed} failed" if now.failed else "",
                left=_time_left(now.seconds_left),
            )
        )


@contextmanager
def progress_of_runs(console: Console | None = None) -> Iterator[Callable[["SweepProgress"], None] | None]:
    """The same for one sweep."""
    with sweep_progress(console) as show:
        yield None if show is None else lambda now: show("runs", now)


def _time_left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} left"


def show_metrics(columns: Mapping[str, Mapping[str, "Figure"]], title: str) -> None:
    """A row per metric that has a value, a column per run; as many tables as the width asks for."""
    from roamcast.lab.run.metrics import metric_of

    first = next(iter(columns.values()))
    names = [name for name in first if any(metrics[name] is not None for metrics in columns.values())]
    units = [metric_of(name).unit for name in names]
    texts = {run: [figure_text(metrics[name]) for name in names] for run, metrics in columns.items()}
    fixed = sum(
        max(map(len, column), default=0) + len(GAP) for column in (["metric", *names], ["unit", *units])
    )
    print(title)
    shown: list[str] = []
    used = fixed
    for run in [*texts, None]:
        width = 0 if run is None else max(map(len, [run, *texts[run]])) + len(GAP)
        if shown and (run is None or used + width > columns_of_terminal()):
            heads = ["metric", *shown, "unit"]
            rows = zip(names, *(texts[name] for name in shown), units, strict=True)
            print(aligned(heads, list(rows), words=(0, len(heads) - 1)))
            shown, used = [], fixed
        if run is not None:
            shown.append(run)
            used += width


def figure_text(value: "Figure") -> str:
    """Counts in full, other figures with three digits."""
    from roamcast.lab.report.numbers import number

    return f"{value:,}" if isinstance(value, int) else number(value, 3)


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns of words to the left, of figures to the right."""
    words = [
        place
        for place in range(len(heads))
        if place == 0 or not all(row[place][:1].isdigit() or row[place][:1] in "–−" for row in rows)
    ]
    print(aligned(heads, rows, words))


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int]) -> str:
    """A plain table with a rule below its heads, which may have several lines."""
    split = [head.split("\n") for head in heads]
    high = max(map(len, split))
    lines = [[head[at] if at < len(head) else "" for head in split] for at in range(high)]
    rule = ["─" * max(map(len, column)) for column in zip(*lines, *rows, strict=True)]
    return "\n".join(in_columns([*lines, rule, *rows], words))


def columns_of_terminal() -> int:
    return shutil.get_terminal_size().columns


def open_page(page: str, wanted: bool | None = None) -> None:
    """Show a page in a browser: if asked, or on a terminal with a display."""
    has_display = sys.platform in ("darwin", "win32") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    )
    if wanted or (wanted is None and sys.stdout.isatty() and has_display and "://" not in page):
        webbrowser.open(Path(page).absolute().as_uri() if "://" not in page else page)
