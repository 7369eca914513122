"""The table of windows for people: a screen that is kept up to date, or lines in a pipe."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from rich.console import Console
from rich.live import Live
from rich.table import Table as ScreenTable

from roamcast.units import SECOND

SHOWN_WINDOWS = 12  # of each run, on a terminal


class WindowScreen:
    """Shows the table: on a terminal the last windows, kept up to date; in a pipe a line for each change."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live: Live | None = None
        self._shown: dict[tuple[str, str, int], dict[str, Any]] = {}

    def __enter__(self) -> "WindowScreen":
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, table: pa.Table) -> None:
        rows = table.to_pylist()
        if self._live is not None:
            self._live.update(_screen(rows), refresh=True)
            return
        for row in rows:
            key = (row["strategy"], row["run"], row["window"])
            if self._shown.get(key) != row:
                self._shown[key] = row
                self._console.print(_line(row), soft_wrap=True, markup=False, highlight=False)


def _screen(rows: list[dict[str, Any]]) -> ScreenTable:
    screen = ScreenTable()
    for head in ("strategy", "run", "from s", "delivered", "ratio", "p50 s", "p95 s", "control", "octets"):
        screen.add_column(head, justify="left" if head in ("strategy", "run") else "right")
    by_run: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        by_run.setdefault((row["strategy"], row["run"]), []).append(row)
    for (strategy, run), windows in by_run.items():
        for row in windows[-SHOWN_WINDOWS:]:
            screen.add_row(
                strategy,
                run,
                f"{row['window'] / SECOND:g}",
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
        f"{row['strategy']} {row['run']} from {row['window'] / SECOND:g} s: "
        f"delivered {row['delivered']}/{row['expected']} ({_number(row['delivery_ratio'])}), "
        f"latency p50 {_number(row['latency_p50'])} s, p95 {_number(row['latency_p95'])} s, "
        f"control {row['control_messages']} frames, {row['control_bytes']} octets"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
