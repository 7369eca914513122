"""Numbers for Bloom filters: 2^24 ordered cells, and ranges as few nodes of a tree over them.

A Bloom filter can only be asked for an exact value, so a range must become values that an event can name.
Two methods are known: quantise to cells and insert each cell of the range, or insert dyadic intervals.
Cells alone fail on `totalscore < 60`, which contains an unlimited number of them. So: cells, and a tree over
them in which each node has four children. A range becomes the few nodes that tile it, at any level. A
number names the nodes above its cell, 13 at most, and is in the range if one of them was inserted.

The cell of a number is a small floating-point code that keeps the order, so that unbounded ranges end in
few large nodes and bounds are equally sharp near 0.01 and near 10,000:

    | sign 1 | exponent 6 | mantissa 17 |

Magnitudes below 2^-12 are linear; those from 2^51 on share the last cell, and so do infinities. The map is
monotone, even where large integers are rounded to floats, and soundness needs nothing else.

Most numbers in events are whole (holes, scores, ranks), and for them `hole > 5` must not contain 5; but a
range that ends just after 5 takes dozens of small nodes. Hence two families of nodes, WHOLE and REAL: a
whole number is looked up only among the first, any other only among the second. In the first, `hole > 5`
begins at 6, which takes few nodes (7 on average for ranges up to 100) and is exact up to 2^18, unless it
takes more than `WHOLE_NODES_MAX`. The second is coarse, by the bound `REAL_NODES_MAX`: it errs outwards, by
a few hundredths of the range's limit. Both bounds are chosen by us: more nodes are more exact and fill the
filters sooner.

The tokens that summaries and digests share: of elements, values, prefixes, types.
"""

import math
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from roamcast.filter.value_set import NUMBER_END, NUMBER_FIRST, Cut
from roamcast.strategy.odmrp.summary.bloom import number_token, text_token

LEVEL_BITS = 2
CELL_BITS = 24
LEVELS = CELL_BITS // LEVEL_BITS
WHOLE_NODES_MAX = 32  # of one range; a range that needs more is widened at its ends
REAL_NODES_MAX = 10  # likewise

_MANTISSA_BITS = 17
_LOWEST = -12  # exponent of the first magnitude that is not linear
_HIGHEST = 51  # exponent from which all magnitudes share the last cell
_HALF = 1 << (CELL_BITS - 1)
_LAST = (1 << CELL_BITS) - 1


class Family(IntEnum):
    WHOLE = 0
    REAL = 1


class CellNode(NamedTuple):
    family: Family
    level: int  # 0: the root
    number: int  # among those of the level


def cell_of(value: float) -> int:
    """The cell of a number that is no NaN; `a <= b` implies `cell_of(a) <= cell_of(b)`."""
    try:
        code = _code(abs(float(value)))
    except OverflowError:  # an integer beyond all floats
        code = _HALF - 1
    return _HALF + code if value >= 0 else _HALF - 1 - code


def nodes_of(value: float) -> list[CellNode]:
    """The nodes that a number names, the root first."""
    return nodes_above(cell_of(value), is_whole(value))


def nodes_above(cell: int, whole: bool) -> list[CellNode]:
    if not whole:
        return [CellNode(Family.REAL, level, _above(cell, level)) for level in range(LEVELS + 1)]
    return [CellNode(Family.WHOLE, level, _above(cell, level)) for level in range(_whole_levels(cell) + 1)]


def is_whole(value: float) -> bool:
    """Whether the number has no fraction and is below the magnitudes that share the last cell."""
    return abs(value) < 1 << _HIGHEST and (isinstance(value, int) or value.is_integer())


def nodes_between(first: Cut, end: Cut) -> list[CellNode]:
    """Nodes that contain every number between two cuts of the number line, in both families."""
    low = None if first == NUMBER_FIRST else _value(first)
    high = None if end == NUMBER_END else _value(end)
    nodes = [CellNode(Family.WHOLE, *tile) for tile in _whole_tiles(first, end)]
    if low is None or low != high or not is_whole(low):
        lowest = 0 if low is None else cell_of(low)
        highest = _LAST if high is None else _cell_below(high, closed=end[2] == 1)
        nodes += (CellNode(Family.REAL, *tile) for tile in _few_tiles(lowest, highest, REAL_NODES_MAX))
    return nodes


def _code(magnitude: float) -> int:
    if magnitude >= 2.0**_HIGHEST:
        return _HALF - 1
    if magnitude < 2.0**_LOWEST:
        exponent, fraction = 0, math.ldexp(magnitude, -_LOWEST)
    else:
        half, power = math.frexp(magnitude)
        exponent, fraction = power - _LOWEST, 2 * half - 1  # the power is one above the exponent
    return exponent << _MANTISSA_BITS | math.floor(math.ldexp(fraction, _MANTISSA_BITS))


def _above(cell: int, level: int) -> int:
    return cell >> (CELL_BITS - LEVEL_BITS * level)


def _whole_levels(cell: int) -> int:
    """The level whose nodes contain at most one whole number near this cell. Ranges of whole numbers begin
    and end between two whole numbers, so no deeper node is ever inserted."""
    code = cell - _HALF if cell >= _HALF else _HALF - 1 - cell
    exponent = (code >> _MANTISSA_BITS) + _LOWEST - 1
    if exponent < 0:  # zero: the cells up to the next whole number are of many magnitudes
        return LEVELS
    return min(-(-(CELL_BITS - _MANTISSA_BITS + exponent) // LEVEL_BITS), LEVELS)


def _whole_tiles(first: Cut, end: Cut) -> list[tuple[int, int]]:
    """Any limit between the last whole number outside and the first inside is correct; this takes limits at
    which nodes end too."""
    lowest, highest = 0, _LAST
    if first != NUMBER_FIRST:
        low = _first_whole(first)
        if low >= 1 << _HIGHEST:
            return []
        lowest = cell_of(low) if low >= 0 else min(cell_of(low), cell_of(low - 1) + 1)
    if end != NUMBER_END:
        high = _last_whole(end)
        if high <= -(1 << _HIGHEST):
            return []
        highest = cell_of(high) if high < -1 else max(cell_of(high), cell_of(high + 1) - 1)
    return _few_tiles(lowest, highest, WHOLE_NODES_MAX)


def _first_whole(cut: Cut) -> int:
    value = _value(cut)
    whole = math.ceil(value)
    return whole + 1 if whole == value and cut[2] == 1 else whole


def _last_whole(cut: Cut) -> int:
    value = _value(cut)
    whole = math.floor(value)
    return whole - 1 if whole == value and cut[2] == 0 else whole


def _cell_below(high: float, closed: bool) -> int:
    """The last cell with numbers up to `high`. A cell from 0 on begins with its smallest number."""
    cell = cell_of(high)
    return cell - 1 if not closed and high >= 0 and _begins_cell(high) else cell


def _begins_cell(value: float) -> bool:
    """Whether a number from 0 on is the smallest of its cell."""
    if value >= 2.0**_HIGHEST:
        return False
    _, power = math.frexp(value)
    scale = _MANTISSA_BITS - _LOWEST if value < 2.0**_LOWEST else _MANTISSA_BITS + 1 - power
    return math.ldexp(value, scale).is_integer()


def _value(cut: Cut) -> int | float:
    """The number at a cut; filters have only finite ones (`validity.py`)."""
    assert not isinstance(cut[1], str)
    return cut[1]


def _few_tiles(low: int, high: int, most: int) -> list[tuple[int, int]]:
    blur = 0
    while len(tiles := _tiles(low, high)) > most:
        blur += LEVEL_BITS
        low, high = low >> blur << blur, high | (1 << blur) - 1
    return tiles


def _tiles(low: int, high: int) -> list[tuple[int, int]]:
    """The largest nodes that tile a closed range of cells, as level and number, from the leaves up."""
    tiles = []
    children = 1 << LEVEL_BITS
    level = LEVELS
    while low <= high:
        if level == 0:
            tiles.append((0, 0))
            break
        while low <= high and low % children:
            tiles.append((level, low))
            low += 1
        while low <= high and (high + 1) % children:
            tiles.append((level, high))
            high -= 1
        low, high, level = low // children, (high + 1) // children - 1, level - 1
    return tiles


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
