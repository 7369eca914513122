"""For a terminal: plain tables, cells as columns of equal width, nothing cut; and nodes by name."""

from collections.abc import Collection, Mapping, Sequence

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


class Naming:
    """Nodes by name in a text: the number stands beside it once, or always where several have the name."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._told: set[int] = set()

    def __call__(self, node: int) -> str:
        name = self._names.get(node)
        if name is None:
            return f"node {node}"
        is_shared = list(self._names.values()).count(name) > 1
        if node in self._told and not is_shared:
            return name
        self._told.add(node)
        return f"{name} ({node})"
