"""The bar that a sweep shows."""

import io

from rich.console import Console

from roamcast.cli.screen import progress_of_runs
from roamcast.lab.sweep.sweep import Progress


def test_a_terminal_shows_runs_failures_and_the_time_left() -> None:
    text = io.StringIO()
    with progress_of_runs(console=Console(file=text, force_terminal=True, width=100)) as show:
        assert show is not None
        show(Progress(3, 1, 12, 125.2))
    assert "3/12" in text.getvalue() and "1 failed" in text.getvalue() and "2:05 left" in text.getvalue()


def test_a_pipe_stays_quiet() -> None:
    text = io.StringIO()
    with progress_of_runs(console=Console(file=text)) as show:
        assert show is None
    assert text.getvalue() == ""
