"""What the index stores: one conjunction of leaves of one subscription's filter.

A filter in disjunctive form has one conjunction per disjunct. The leaves decide where a conjunction
is kept; the exact answer always comes from the whole filter's compiled function (`matches`), which is
there anyway, so the index compiles nothing and holds no second copy of a filter.
"""

from collections.abc import Callable, Hashable
from typing import TypeAlias

from roamcast.event import Event
from roamcast.filter.expression import Compare, Expression, IsNull, Like, Not, OneOf

Leaves: TypeAlias = tuple[Expression, ...]

COLUMNS_MAX = 48  # attributes of one bitmap; the compiled filter decides on others. Chosen by us


class Conjunction:
    """Compared by identity: the same leaves in two subscriptions are two conjunctions."""

    __slots__ = ("key", "leaves", "matches", "sequence")

    def __init__(
        self, leaves: Leaves, key: Hashable, sequence: int, matches: Callable[[Event], bool]
    ) -> None:
        self.leaves = leaves
        self.key = key  # of the subscription
        self.sequence = sequence  # of the subscription: the order of adding
        self.matches = matches  # of the whole filter


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
