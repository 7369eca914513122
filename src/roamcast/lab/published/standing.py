"""What came out, counted: by work, in a sentence, and as the page `docs/protocols/results.md`."""

from collections.abc import Sequence

from roamcast.lab.published.agreement import DIFFERS, VERDICTS, FigureRow, counted
from roamcast.lab.published.figure import PublishedFigure
from roamcast.lab.report import markdown_table
from roamcast.lab.report.numbers import interval, number, numbered

PLURALS = {"agrees": "agree", "differs": "differ"}
KINDS = {"number": "published numbers", "claim": "claims in words"}


def sentence(rows: Sequence[FigureRow]) -> str:
    """`Of 12 published numbers 3 agree, 9 differ; of 4 claims in words …`"""
    parts = []
    for kind, words in KINDS.items():
        found = counted(rows, kind)
        told = ", ".join(f"{found[it]} {PLURALS.get(it, it)}" for it in VERDICTS if found[it])
        parts.append(f"of {found.total()} {words}: {told or 'none'}")
    return "; ".join(parts).capitalize()


def standing(rows: Sequence[FigureRow]) -> tuple[list[str], list[list[str]]]:
    """The heads and the rows of a table: each work, numbers and claims, how many have which verdict."""
    works = {row.work: None for row in rows if row.kind in KINDS}
    made = []
    for work in works:
        for kind, words in KINDS.items():
            found = counted([row for row in rows if row.work == work], kind)
            if found:
                figures = [str(found[verdict]) for verdict in VERDICTS]
                made.append([work, words, str(found.total()), *figures])
    return ["work", "what", "in all", *VERDICTS], made


def markdown(found: Sequence[tuple[PublishedFigure, Sequence[FigureRow]]], made_by: str) -> str:
    """The page, from the rows of `reproduction.json`."""
    rows = [row for _, of_figure in found for row in of_figure]
    parts = [
        "# Published figures: what came out\n\n"
        "Written by `roamcast reproduce --page`; every figure here is from runs of that command. "
        "[How verdicts are made](../study/reproduce.md#verdicts).\n\n"
        f"{made_by}\n\n**{sentence(rows)}.**\n",
        markdown_table(*standing(rows)) + "\n",
    ]
    for figure, of_figure in found:
        parts.append(f"## {figure.file.title}\n\n`{figure.name}` · {figure.file.source}\n")
        for extra in (False, True):
            lines = [_line(row) for row in of_figure if (row.kind == "extra") is extra]
            if lines:
                parts.append("Ours beside it, not counted:\n" if extra else "")
                heads = ["quantity", "published, or the claim", "ours", "95% interval", "verdict", "seeds"]
                parts.append(markdown_table(heads, lines) + "\n")
    return "\n".join(filter(None, parts))


def told(row: FigureRow) -> str:
    """The verdict; where ours differs, by how much."""
    if row.verdict != DIFFERS or row.difference is None:
        return row.verdict
    if row.published:
        return f"{row.verdict} by {row.difference / abs(row.published):+.0%}".replace("-", "−")
    return f"{row.verdict} by {number(row.difference)}"


def _line(row: FigureRow) -> list[str]:
    what = ". ".join(filter(None, [row.quantity, row.detail, row.note]))
    unit = f" {row.unit}" if row.unit else ""
    ours = "–" if row.ours is None else f"{number(row.ours)}{unit}"
    return [what, row.rule, ours, interval(row.low, row.high), told(row), numbered(row.seeds) or "–"]
