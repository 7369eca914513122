"""What a bitmap is made of: conjunctions of conditions, one column for each attribute, and which attributes
have columns with which cuts."""

from array import array
from bisect import bisect_right
from collections.abc import Generator, Hashable, Iterable
from typing import Any, TypeAlias, TypeVar

from roamcast.event import Event, Value
from roamcast.filter.expression import Compare, Expression, IsNull, Like, Not, OneOf
from roamcast.filter.filter import Filter
from roamcast.filter.index.rows import AttributeRows, TrueSpans, choose_cuts, edges_of

Leaves: TypeAlias = tuple[Expression, ...]
Path: TypeAlias = Expression | str | None
"""How a conjunction is found: by one of its leaves, by an attribute that is present, or always."""

COLUMNS_MAX = 48  # attributes of one bitmap; the compiled filter decides on others. Chosen by us


class Conjunction:
    """What the index stores: one conjunction of leaves of one subscription's filter. Compared by identity:
    the same leaves in two subscriptions are two conjunctions.

    A filter in disjunctive form has one conjunction per disjunct. The leaves decide where a conjunction is
    kept; where they do not decide alone, the whole filter is asked, so the index compiles nothing and holds
    no second copy of a filter.
    """

    __slots__ = ("filter", "key", "leaves", "next", "path", "sequence")

    def __init__(self, leaves: Leaves, key: Hashable, sequence: int, filter: Filter) -> None:
        self.leaves = leaves
        self.key = key  # of the subscription
        self.sequence = sequence  # the order of adding
        self.filter = filter  # the whole of which this is a part
        self.path: Path = None
        self.next: Conjunction | None = None  # of the same subscription

    def tested_leaves(self) -> list[Expression]:
        """Those that are not known to be true when the path leads here."""
        path = self.path
        return [leaf for leaf in self.leaves if leaf is not path]


def attribute_of(leaf: Expression) -> str | None:
    """The one attribute a leaf looks at; None for topics and types."""
    if isinstance(leaf, Compare):  # most are
        return leaf.attribute
    term = leaf.term if isinstance(leaf, Not) else leaf
    return term.attribute if isinstance(term, OneOf | Like | IsNull) else None


def required_attributes(leaves: Leaves) -> list[str]:
    """Attributes that must not be NULL for the conjunction to be true, in order of appearance."""
    required: dict[str, None] = {}
    for leaf in leaves:
        attribute = attribute_of(leaf)
        if attribute is not None and not isinstance(leaf, IsNull):
            required[attribute] = None
    return list(required)


T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Building, in steps of some ten microseconds: who changes the index need not wait for the end of it."""


class BitmapColumn:
    """One attribute's part of a bitmap: which conjunctions its value rules out.

    For each row there is a bitmap of the conjunctions that are false where the row begins. Edges inside a row
    change one bit each; they are kept in order and applied up to the event's value, so every comparison is
    decided exactly, and the number of rows only trades memory for time.
    """

    __slots__ = ("edges", "rows", "slots", "starts")

    def __init__(self, row_count: int) -> None:
        self.rows = [0] * row_count
        self.starts = array("I", bytes(4 * (row_count + 1)))  # of each row in the edges, and their number
        self.edges: list[Any] = []
        self.slots = array("H")

    def add(self, slot: int, truth: TrueSpans) -> None:
        bit = 1 << slot
        rows = self.rows
        start = 0
        for (first, begins_inside, low), (last, ends_inside, high) in truth.spans:
            for row in range(start, first + begins_inside):
                rows[row] |= bit
            start = last + ends_inside
            if begins_inside:
                self._insert(first, low, slot)
            if ends_inside:
                self._insert(last, high, slot)
        for row in range(start, len(rows)):
            rows[row] |= bit

    def _insert(self, row: int, edge: Any, slot: int) -> None:
        starts = self.starts
        at = bisect_right(self.edges, edge, starts[row], starts[row + 1])
        self.edges.insert(at, edge)
        self.slots.insert(at, slot)
        for after in range(row + 1, len(starts)):
            starts[after] += 1


class ColumnDraft:
    """A column of many conjunctions: notes where each changes, which takes less than `BitmapColumn.add`."""

    __slots__ = ("_changes", "_inside")

    def __init__(self, row_count: int) -> None:
        self._changes = [0] * (row_count + 1)
        self._inside: list[list[tuple[Any, int]]] = [[] for _ in range(row_count)]

    def add(self, slot: int, truth: TrueSpans) -> None:
        bit = 1 << slot
        changes = self._changes
        changes[0] ^= bit
        for span in truth.spans:
            for row, is_inside, edge in span:
                changes[row + is_inside] ^= bit
                if is_inside:
                    self._inside[row].append((edge, slot))

    def finished(self) -> Steps[BitmapColumn]:
        column = BitmapColumn(len(self._inside))
        false = 0
        for row, edges in enumerate(self._inside):
            self._inside[row] = []  # freed row by row: all at once would be a long step
            false ^= self._changes[row]
            column.rows[row] = false
            edges.sort()
            column.edges += [edge for edge, _ in edges]
            column.slots.extend([slot for _, slot in edges])
            column.starts[row + 1] = len(column.edges)
            yield
        return column


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
        del conjunction  # it may be removed before the next step, so no reference to it is kept here
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
