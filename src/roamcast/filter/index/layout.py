"""Which attributes a bitmap has columns for, and the cuts of each."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from roamcast.event import Event, Value
from roamcast.filter.index.column import Steps
from roamcast.filter.index.conjunction import COLUMNS_MAX, Conjunction, attribute_of
from roamcast.filter.index.rows import AttributeRows, choose_cuts, edges_of

CUTS_TOTAL = 1024  # over all columns; each takes one bit of a conjunction (`benchmarks/matching.py`)
CUTS_MIN = 4  # of numbers or texts in each column; chosen by us


class BitmapLayout:
    """Made once from examples and shared by bitmaps: an event's values are located once for all of them."""

    def __init__(self, columns: dict[str, AttributeRows]) -> None:
        self.columns = columns
        self.numbers = {attribute: number for number, attribute in enumerate(columns)}
        self._probes = [(attribute, rows.row_of) for attribute, rows in columns.items()]

    def located(self, event: Event) -> "Located":
        """The event's value in each column, and its row."""
        value_of = event.attributes.get
        return [(row_of(value := value_of(attribute)), value) for attribute, row_of in self._probes]


Located: TypeAlias = list[tuple[int, Value]]


def layout_for(examples: Iterable[Conjunction | None]) -> Steps[BitmapLayout]:
    """Columns for the attributes used most. Cuts are shared out by use; what the attributes with few
    different constants do not need is left for the others."""
    edges: dict[str, tuple[list[Any], list[Any]]] = {}
    uses: dict[str, int] = {}
    for conjunction in examples:
        for leaf in conjunction.tested_leaves() if conjunction is not None else ():
            attribute = attribute_of(leaf)
            if attribute is None:
                continue
            uses[attribute] = uses.get(attribute, 0) + 1
            numbers, texts = edges.setdefault(attribute, ([], []))
            for value in edges_of(leaf):
                (texts if isinstance(value, str) else numbers).append(value)
        del conjunction  # it may be removed before the next step, and must not stay alive here
        yield
    chosen = sorted(uses, key=lambda attribute: -uses[attribute])[:COLUMNS_MAX]
    wanting = [values for attribute in chosen for values in edges[attribute] if values]
    wanting.sort(key=lambda values: len(set(values)))
    cuts: dict[int, list[Any]] = {}
    cuts_left, edges_left = CUTS_TOTAL, sum(map(len, wanting))
    for values in wanting:
        chosen_cuts = choose_cuts(values, max(CUTS_MIN, cuts_left * len(values) // edges_left))
        cuts[id(values)] = chosen_cuts
        cuts_left = max(0, cuts_left - len(chosen_cuts))
        edges_left -= len(values)
        yield
    return BitmapLayout(
        {
            attribute: AttributeRows(*(cuts.get(id(values), []) for values in edges[attribute]))
            for attribute in chosen
        }
    )
