"""Published tables and figures as files, and what it means that ours agree with them.

`<paper>/<figure>.toml` holds one: the experiment, the published values, the rules of agreement. `figure`
reads and checks such a file, `formula` the arithmetic over metrics in it, `agreement` compares it with a
sweep's results. `roamcast reproduce` runs them; `roamcast report` shows them beside a sweep that is one
of them. `docs/study/reproduce.md` has the format.
"""

from roamcast.lab.published.agreement import FigureRow, rows, rows_of_sweep
from roamcast.lab.published.figure import PublishedFigure, known, load_figure, selected

__all__ = ["FigureRow", "PublishedFigure", "known", "load_figure", "rows", "rows_of_sweep", "selected"]
