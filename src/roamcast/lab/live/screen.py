"""The table of windows for people: a screen that is kept up to date, or lines in a pipe. Times are UTC."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from rich.console import Console
from rich.live import Live
from rich.table import Table as ScreenTable

from roamcast.units import SECOND, Micros

SHOWN_WINDOWS = 12  # of each run, on a terminal


class WindowScreen:
    """Shows rows that changed: on a terminal the last windows of each run, in a pipe a line for each."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live: Live | None = None
        self._shown: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}  # the last windows of each run

    def __enter__(self) -> "WindowScreen":
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, changed: pa.Table) -> None:
        for row in changed.to_pylist():
            windows = self._shown.setdefault((row["strategy"], row["run"]), {})
            windows[row["window"]] = row
            while len(windows) > SHOWN_WINDOWS:
                del windows[min(windows)]
            if self._live is None:
                self._console.print(_line(row), soft_wrap=True, markup=False, highlight=False)
        if self._live is not None:
            self._live.update(_screen(self._shown), refresh=True)


def _screen(shown: Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]]) -> ScreenTable:
    screen = ScreenTable()
    for head in ("strategy", "run", "from", "delivered", "ratio", "p50 s", "p95 s", "control", "octets"):
        screen.add_column(head, justify="left" if head in ("strategy", "run") else "right")
    for (strategy, run), windows in sorted(shown.items()):
        for _, row in sorted(windows.items()):
            screen.add_row(
                strategy,
                run,
                _clock(row["window"]),
                f"{row['delivered']}/{row['expected']}",
                _number(row["delivery_ratio"]),
                _number(row["latency_p50"]),
                _number(row["latency_p95"]),
                str(row["control_messages"]),
                str(row["control_bytes"]),
            )
    return screen


def _line(row: Mapping[str, Any]) -> str:
    return (
        f"{row['strategy']} {row['run']} from {_clock(row['window'])}: "
        f"delivered {row['delivered']}/{row['expected']} ({_number(row['delivery_ratio'])}), "
        f"latency p50 {_number(row['latency_p50'])} s, p95 {_number(row['latency_p95'])} s, "
        f"control {row['control_messages']} frames, {row['control_bytes']} octets"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _clock(window: Micros) -> str:
    return datetime.fromtimestamp(window / SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")
