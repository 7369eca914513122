"""What the index stores: one conjunction of leaves of one subscription's filter.

A filter in disjunctive form has one conjunction per disjunct. The leaves decide where a conjunction
is kept; where they do not decide alone, the whole filter is asked, so the index compiles nothing and
holds no second copy of a filter.
"""

from collections.abc import Hashable
from typing import TypeAlias

from roamcast.filter.expression import Compare, Expression, IsNull, Like, Not, OneOf
from roamcast.filter.filter import Filter

Leaves: TypeAlias = tuple[Expression, ...]
Path: TypeAlias = Expression | str | None
"""How a conjunction is found: by one of its leaves, by an attribute that is present, or always."""

COLUMNS_MAX = 48  # attributes of one bitmap; the compiled filter decides on others. Chosen by us


class Conjunction:
    """Compared by identity: the same leaves in two subscriptions are two conjunctions."""

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
