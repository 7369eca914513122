"""Plain tables for a terminal: cells as columns of equal width. Nothing is cut, whatever the width."""

from collections.abc import Collection, Sequence

GAP = "  "


def in_columns(rows: Sequence[Sequence[str]], words: Collection[int]) -> list[str]:
    """A line for each row. Columns in `words` begin at the left, the others end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(
            text.ljust(width) if place in words else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
