"""Covering: whether one filter matches everything that another matches.

`covers(a, b)` is True only if every event that b matches is matched by a: sound, always. It is also
complete, that is, False only if some event tells the two apart, where both are ANDs of comparisons,
BETWEEN, IN, IS [NOT] NULL, prefix LIKEs and ORs of these on one attribute, and hold at most one
topic filter and one type; numbers are the real line there (`value_set.py`). Beyond that it may miss
a covering: patterns and topic filters are compared pair by pair, and each AND of b's disjunctive
form must be covered by a single AND of a's.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from roamcast.filter.evaluate import type_covers
from roamcast.filter.expression import And, Expression, Like, Not, OfType, OnTopic, Or, Within
from roamcast.filter.normal import attribute_set, normalise, order_key
from roamcast.filter.pattern import (
    Tokens,
    after_prefix,
    is_prefix_pattern,
    matcher,
    pattern_covers,
    patterns_exclude,
    prefix,
    tokens_of,
)
from roamcast.filter.place import place_covers
from roamcast.filter.topic import topic_covers, topics_overlap
from roamcast.filter.value_set import ALL_TEXTS, ALL_VALUES, NO_VALUES, ValueSet, any_of, texts_between

DISJUNCTS_MAX = 64  # of either filter; beyond it, terms are compared one by one. These bounds: chosen by us
TEXTS_TRIED_MAX = 64  # members of an IN tried against a pattern

TERM_PAIRS_MAX = 64  # compared one by one where a disjunctive form is too long
EVIDENCE_MAX = 16  # patterns or topic filters of one AND that are tried to show that a condition holds

AttributePattern: TypeAlias = tuple[str, Tokens]


class Prepared(NamedTuple):
    """A normal form, taken apart for comparison; worth keeping where it is compared often."""

    expression: Expression
    key: bytes
    alternatives: "list[SortedConjunction] | None"  # None: too many

    @classmethod
    def of(cls, normal: Expression) -> "Prepared":
        alternatives = _alternatives(normal)
        settled = None if alternatives is None else [each.settled() for each in alternatives]
        return cls(normal, order_key(normal), settled)

    def covers(self, narrow: "Prepared") -> bool:
        if self.key == narrow.key:
            return True
        if self.alternatives is None or narrow.alternatives is None:
            return _covers_by_terms(self.expression, narrow.expression)
        return all(
            each.impossible() or any(candidate.covers(each) for candidate in self.alternatives)
            for each in narrow.alternatives
        )


def covers(wide: Expression, narrow: Expression) -> bool:
    """True only if every event that `narrow` matches is matched by `wide`."""
    return Prepared.of(normalise(wide)).covers(Prepared.of(normalise(narrow)))


def _covers_by_terms(wide: Expression, narrow: Expression) -> bool:
    """For filters whose disjunctive form is too long: every term of the wide AND must cover every term of the
    narrow OR. It does if one alternative of the former covers one condition of the latter."""
    wide_terms = wide.terms if isinstance(wide, And) else (wide,)
    narrow_terms = narrow.terms if isinstance(narrow, Or) else (narrow,)
    if len(wide_terms) * len(narrow_terms) > TERM_PAIRS_MAX:
        return False
    return all(_some_part_covers(above, below) for above in wide_terms for below in narrow_terms)


def _some_part_covers(wide: Expression, narrow: Expression) -> bool:
    above = (wide, *wide.terms) if isinstance(wide, Or) else (wide,)
    below = (narrow, *narrow.terms) if isinstance(narrow, And) else (narrow,)
    if not {order_key(part) for part in above}.isdisjoint(map(order_key, below)):
        return True
    if len(above) * len(below) > TERM_PAIRS_MAX:
        return False
    simple_above = [part for part in map(Prepared.of, above) if _is_simple(part)]
    simple_below = [part for part in map(Prepared.of, below) if _is_simple(part)]
    return any(one.covers(other) for one in simple_above for other in simple_below)


def _is_simple(part: Prepared) -> bool:
    return part.alternatives is not None and len(part.alternatives) <= 4  # bounds the worst case


class SortedConjunction(msgspec.Struct, frozen=True):
    """An AND, sorted by what its leaves are about. Attributes, topic and type vary independently."""

    values: dict[str, ValueSet] = {}
    like: tuple[AttributePattern, ...] = ()
    unlike: tuple[AttributePattern, ...] = ()
    topics: tuple[str, ...] = ()
    not_topics: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    not_types: tuple[str, ...] = ()
    places: tuple[Within, ...] = ()
    not_places: tuple[Within, ...] = ()

    def joined(self, other: "SortedConjunction") -> "SortedConjunction":
        return SortedConjunction(
            _intersection(self.values, other.values.items()),
            self.like + other.like,
            self.unlike + other.unlike,
            self.topics + other.topics,
            self.not_topics + other.not_topics,
            self.types + other.types,
            self.not_types + other.not_types,
            self.places + other.places,
            self.not_places + other.not_places,
        )

    def settled(self) -> "SortedConjunction":
        """The same AND, with all that patterns say about values also written in `values`."""
        known = [(attribute, _texts_like(tokens)) for attribute, tokens in self.like]
        for attribute, tokens in self.unlike:
            excluded = _texts_like(tokens) if is_prefix_pattern(tokens) else NO_VALUES
            known.append((attribute, ALL_TEXTS.minus(excluded)))
        values = _intersection(self.values, known)
        tried = {}
        for attribute, _ in self.like + self.unlike:
            few = values[attribute].few_texts(TEXTS_TRIED_MAX)
            if few is not None:
                tried[attribute] = any_of(text for text in few if self._allows(attribute, text))
        return msgspec.structs.replace(self, values=values | tried)

    def impossible(self) -> bool:
        """True only if no event matches."""
        likes, topics = self.like[:EVIDENCE_MAX], self.topics[:EVIDENCE_MAX]
        return (
            NO_VALUES in self.values.values()
            or any(
                here == there and pattern_covers(unlike, like)
                for here, like in likes
                for there, unlike in self.unlike[:EVIDENCE_MAX]
            )
            or any(
                here == there and patterns_exclude(one, other)
                for here, one in likes
                for there, other in likes
            )
            or any(not topics_overlap(one, other) for one in topics for other in topics)
            or any(topic_covers(without, one) for without in self.not_topics for one in topics)
            or any(not type_covers(other, max(self.types, key=len)) for other in self.types)
            or any(type_covers(without, one) for without in self.not_types for one in self.types)
        )

    def covers(self, narrow: "SortedConjunction") -> bool:
        """Whether each condition here follows from one in `narrow`. Both are settled."""
        return (
            all(
                narrow.values.get(attribute, ALL_VALUES).within(values)
                for attribute, values in self.values.items()
            )
            and all(narrow._implies_like(*like) for like in self.like)
            and all(narrow._implies_unlike(*unlike) for unlike in self.unlike)
            and all(narrow._implies_topic(topic) for topic in self.topics)
            and all(narrow._implies_not_topic(topic) for topic in self.not_topics)
            and all(any(type_covers(wide, each) for each in narrow.types) for wide in self.types)
            and all(narrow._implies_not_type(type_) for type_ in self.not_types)
            and all(_some_covers([place], narrow.places) for place in self.places)
            and all(_some_covers(narrow.not_places, [place]) for place in self.not_places)
        )

    def _allows(self, attribute: str, text: str) -> bool:
        return all(matcher(tokens)(text) for name, tokens in self.like if name == attribute) and not any(
            matcher(tokens)(text) for name, tokens in self.unlike if name == attribute
        )

    def _implies_like(self, attribute: str, tokens: Tokens) -> bool:
        # `values` has already shown that the attribute is a text and begins as it must.
        if is_prefix_pattern(tokens) or (attribute, tokens) in self.like:
            return True
        few = self.values[attribute].few_texts(TEXTS_TRIED_MAX)
        if few is not None:
            return all(map(matcher(tokens), few))
        return any(pattern_covers(tokens, like) for like in _patterns(self.like, attribute))

    def _implies_unlike(self, attribute: str, tokens: Tokens) -> bool:
        values = self.values[attribute]
        if (attribute, tokens) in self.unlike or values.intersection(_texts_like(tokens)) == NO_VALUES:
            return True
        few = values.few_texts(TEXTS_TRIED_MAX)
        if few is not None:
            return not any(map(matcher(tokens), few))
        return any(pattern_covers(unlike, tokens) for unlike in _patterns(self.unlike, attribute)) or any(
            patterns_exclude(like, tokens) for like in _patterns(self.like, attribute)
        )

    def _implies_topic(self, topic_filter: str) -> bool:
        return topic_filter in self.topics or any(
            topic_covers(topic_filter, each) for each in self.topics[:EVIDENCE_MAX]
        )

    def _implies_not_topic(self, topic_filter: str) -> bool:
        return any(topic_covers(without, topic_filter) for without in self.not_topics[:EVIDENCE_MAX]) or any(
            not topics_overlap(each, topic_filter) for each in self.topics[:EVIDENCE_MAX]
        )

    def _implies_not_type(self, type_: str) -> bool:
        return any(type_covers(without, type_) for without in self.not_types) or any(
            not _types_overlap(each, type_) for each in self.types
        )


def _alternatives(expression: Expression) -> list[SortedConjunction] | None:
    """A normal form as an OR of ANDs; an OR that stays on one attribute is a set and not taken apart."""
    found = attribute_set(expression)
    if found is not None:
        return [SortedConjunction(values=dict([found]))]
    match expression:
        case And(terms):
            return _products(terms)
        case Or(terms):
            return _sums(terms)
    return [_leaf(expression)]


def _products(terms: Iterable[Expression]) -> list[SortedConjunction] | None:
    products = [SortedConjunction()]
    for term in terms:
        alternatives = _alternatives(term)
        if alternatives is None or len(products) * len(alternatives) > DISJUNCTS_MAX:
            return None
        products = [left.joined(right) for left in products for right in alternatives]
    return products


def _sums(terms: Iterable[Expression]) -> list[SortedConjunction] | None:
    sets: dict[str, ValueSet] = {}
    sums: list[SortedConjunction] = []
    for term in terms:
        found = attribute_set(term)
        if found is not None:
            attribute, values = found
            sets[attribute] = sets.get(attribute, NO_VALUES).union(values)
            continue
        alternatives = _alternatives(term)
        if alternatives is None or len(sums) + len(alternatives) > DISJUNCTS_MAX:
            return None
        sums += alternatives
    sums += (SortedConjunction(values={attribute: values}) for attribute, values in sets.items())
    return sums if len(sums) <= DISJUNCTS_MAX else None


def _leaf(expression: Expression) -> SortedConjunction:
    match expression:
        case Like(attribute, pattern, escape):
            return SortedConjunction(like=((attribute, tokens_of(pattern, escape)),))
        case Not(Like(attribute, pattern, escape)):
            return SortedConjunction(unlike=((attribute, tokens_of(pattern, escape)),))
        case OnTopic(topic_filter):
            return SortedConjunction(topics=(topic_filter,))
        case Not(OnTopic(topic_filter)):
            return SortedConjunction(not_topics=(topic_filter,))
        case OfType(type_):
            return SortedConjunction(types=(type_,))
        case Not(OfType(type_)):
            return SortedConjunction(not_types=(type_,))
        case Within():
            return SortedConjunction(places=(expression,))
        case Not(Within() as place):
            return SortedConjunction(not_places=(place,))
    raise AssertionError(f"not a leaf of a normal form: {expression}")


def _intersection(values: dict[str, ValueSet], more: Iterable[tuple[str, ValueSet]]) -> dict[str, ValueSet]:
    result = dict(values)
    for attribute, others in more:
        result[attribute] = result[attribute].intersection(others) if attribute in result else others
    return result


def _patterns(pairs: tuple[AttributePattern, ...], attribute: str) -> list[Tokens]:
    return [tokens for name, tokens in pairs if name == attribute][:EVIDENCE_MAX]


def _texts_like(tokens: Tokens) -> ValueSet:
    """The texts that begin as the pattern does: all its matches, and for a prefix pattern no others."""
    text = prefix(tokens)
    return texts_between(text, after_prefix(text))


def _some_covers(wide: Sequence[Within], narrow: Sequence[Within]) -> bool:
    return any(place_covers(one, other) for one in wide[:EVIDENCE_MAX] for other in narrow[:EVIDENCE_MAX])


def _types_overlap(one: str, other: str) -> bool:
    return type_covers(one, other) or type_covers(other, one)
