"""The tokens that summaries and digests share: of elements, values, prefixes, types."""

from functools import lru_cache

from roamcast.strategy.odmrp.summary.bloom import number_token, text_token
from roamcast.strategy.odmrp.summary.cells import CellNode

TOPIC = "\0topic"  # the topic is an element too; no attribute has U+0000 in its name
AFFIX_LENGTHS = (8, 4, 2, 1)  # characters; ours; longer beginnings and ends of patterns are cut to these
TYPE_LEVELS_MAX = 8  # ours; a subscription to a deeper type is widened to this depth
ANY = 0  # in an association: whatever value this element has


@lru_cache(maxsize=1 << 14)
def element_of(attribute: str) -> int:
    """16 bits, never 0. Attributes that collide are treated as one element with several values."""
    return text_token(b"element", attribute) % 0xFFFF + 1


def type_token(type_: str) -> int:
    return text_token(b"type", type_)


def exact_token(element: int, text: str) -> int:
    return text_token(b"exact" + element.to_bytes(2, "big"), text)


def left_token(element: int, beginning: str) -> int:
    return text_token(b"left" + element.to_bytes(2, "big"), beginning) if beginning else any_text(element)


def right_token(element: int, end: str) -> int:
    return text_token(b"right" + element.to_bytes(2, "big"), end) if end else any_text(element)


def any_text(element: int) -> int:
    """Stands for the empty beginning or end, which every text has; so it is never sent."""
    return number_token(1, element)


def boolean_token(element: int, value: bool) -> int:
    return number_token(2, element, value)


def node_token(element: int, node: CellNode) -> int:
    return number_token(3, element, *node)


def number_point_token(element: int, cell: int) -> int:
    return number_token(5, element, cell)


def association_token(first: int, second: int) -> int:
    """Of two labels, the one of the element with the smaller number first."""
    return number_token(4, first, second)


def label(kind: int, token: int) -> int:
    """The name of a value within its element; never ANY."""
    return kind << 24 | token


def cut_to_length(text: str) -> int:
    """The length of the longest beginning or end of a text that digests name."""
    return next((length for length in AFFIX_LENGTHS if length <= len(text)), 0)


def types_above(type_: str) -> list[str]:
    """A type and those it is below (`alarm.fire.oven`: `alarm`, `alarm.fire`), the first few levels."""
    if not type_:
        return []
    dots = [at for at, character in enumerate(type_) if character == "."]
    return [type_[:end] for end in [*dots, len(type_)][:TYPE_LEVELS_MAX]]
