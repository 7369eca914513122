"""LIKE patterns: reading, matching and comparing them.

`%` stands for any run of characters, `_` for any one; letter case counts. An escape character makes
the `%`, `_` or escape character that follows it literal, and nothing else may follow it (as
in standard SQL and Spark; SQLite would let anything follow).

Patterns come from the network, so matching must not take exponential time: the pieces between `%` are found
one after the other, leftmost first, which is correct for such patterns and needs no backtracking.
"""

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

ESCAPE = "!"  # in canonical spellings, where one is needed at all
COMPARED_STEPS_MAX = 1 << 12  # token pairs compared for two patterns; beyond it, "do not know". Chosen by us


class Wildcard(Enum):
    RUN = "%"
    ONE = "_"


Tokens: TypeAlias = tuple[str | Wildcard, ...]
"""Literal texts and wildcards; canonical: in a stretch of wildcards the ONEs come first and at most
one RUN follows, and no two literals are neighbours."""


@lru_cache(maxsize=4096)
def tokens_of(pattern: str, escape: str) -> Tokens:
    """Read a pattern; ValueError says what is wrong with its escapes."""
    if len(escape) > 1 or escape in ("%", "_"):
        raise ValueError(f"the escape character {escape!r} is not one character other than % and _")
    symbols: list[str | Wildcard] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            following = next(characters, "")
            if not following or following not in ("%", "_", escape):
                raise ValueError(f"the escape character {escape!r} must stand before %, _ or itself")
            symbols.append(following)
        elif character in ("%", "_"):
            symbols.append(Wildcard(character))
        else:
            symbols.append(character)
    return _canonical(symbols)


def spelling(tokens: Tokens) -> tuple[str, str]:
    """Tokens as pattern and escape character, the latter empty where it is not needed."""
    literals = "".join(token for token in tokens if isinstance(token, str))
    escape = ESCAPE if "%" in literals or "_" in literals else ""
    parts = []
    for token in tokens:
        if isinstance(token, Wildcard):
            parts.append(token.value)
        elif escape:
            parts.append(re.sub(r"[%_!]", lambda special: ESCAPE + special[0], token))
        else:
            parts.append(token)
    return "".join(parts), escape


@lru_cache(maxsize=4096)
def matcher(tokens: Tokens) -> Callable[[str], bool]:
    """A function that tells whether a text matches, in time linear in the text for each piece."""
    if is_prefix_pattern(tokens):
        beginning = prefix(tokens)
        return lambda text: text.startswith(beginning)
    pieces = _pieces(tokens)
    if len(pieces) == 1:
        whole = _regular(pieces[0])
        return lambda text: whole.fullmatch(text) is not None
    head, tail = _regular(pieces[0]), _regular(pieces[-1])
    head_length, tail_length = _length(pieces[0]), _length(pieces[-1])
    inner = [_regular(piece) for piece in pieces[1:-1]]

    def matches(text: str) -> bool:
        end = len(text) - tail_length
        if end < head_length or head.match(text) is None or tail.match(text, end) is None:
            return False
        at = head_length
        for piece in inner:
            found = piece.search(text, at, end)
            if found is None:
                return False
            at = found.end()
        return True

    return matches


def prefix(tokens: Tokens) -> str:
    """The literal text that every match begins with."""
    return tokens[0] if tokens and isinstance(tokens[0], str) else ""


def is_prefix_pattern(tokens: Tokens) -> bool:
    """`text%`: it says where a text begins and nothing else."""
    return len(tokens) == 2 and isinstance(tokens[0], str) and tokens[1] is Wildcard.RUN


def patterns_exclude(one: Tokens, other: Tokens) -> bool:
    """True only if no text matches both: they begin or end differently."""
    first, second = prefix(one), prefix(other)
    if not (first.startswith(second) or second.startswith(first)):
        return True
    first, second = _suffix(one), _suffix(other)
    return not (first.endswith(second) or second.endswith(first))


def after_prefix(text: str) -> str | None:
    """The first text after all that begin with `text`; None where there is none."""
    for at in range(len(text) - 1, -1, -1):
        if text[at] < "\U0010ffff":
            return text[:at] + chr(ord(text[at]) + 1)
    return None


@lru_cache(maxsize=4096)
def pattern_covers(wide: Tokens, narrow: Tokens) -> bool:
    """True only if every text that matches `narrow` matches `wide`.

    `wide` is matched against the symbols of `narrow` as if they were characters. That is sound; it
    misses pairs in which a RUN of `narrow` can be seen to be non-empty only by what follows it
    (`_%` covers `%a`).
    """
    above, below = _symbols(wide), _symbols(narrow)
    if len(above) * len(below) > COMPARED_STEPS_MAX:
        return wide == narrow
    # reach[j]: the symbols of `wide` so far cover the first j symbols of `narrow`.
    reach = [True] + [False] * len(below)
    for symbol in above:
        if symbol is Wildcard.RUN:
            first = reach.index(True) if True in reach else len(reach)
            reach = [at >= first for at in range(len(reach))]
        else:
            reach = [False] + [reach[at] and _symbol_covers(symbol, other) for at, other in enumerate(below)]
    return reach[-1]


def _suffix(tokens: Tokens) -> str:
    return tokens[-1] if tokens and isinstance(tokens[-1], str) else ""


def _symbol_covers(wide: str | Wildcard, narrow: str | Wildcard) -> bool:
    if wide is Wildcard.ONE:
        return narrow is not Wildcard.RUN
    return wide == narrow


def _canonical(symbols: list[str | Wildcard]) -> Tokens:
    tokens: list[str | Wildcard] = []
    literal = ""
    run = False
    for symbol in symbols:
        if isinstance(symbol, str):
            if run:
                tokens.append(Wildcard.RUN)
                run = False
            literal += symbol
            continue
        if literal:
            tokens.append(literal)
            literal = ""
        if symbol is Wildcard.RUN:
            run = True
        else:
            tokens.append(symbol)
    if run:
        tokens.append(Wildcard.RUN)
    if literal:
        tokens.append(literal)
    return tuple(tokens)


def _symbols(tokens: Tokens) -> list[str | Wildcard]:
    return [symbol for token in tokens for symbol in (token if isinstance(token, str) else (token,))]


def _pieces(tokens: Tokens) -> list[Tokens]:
    """What stands between the RUNs; one piece means that there is no RUN."""
    pieces: list[list[str | Wildcard]] = [[]]
    for token in tokens:
        if token is Wildcard.RUN:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [tuple(piece) for piece in pieces]


def _length(piece: Tokens) -> int:
    return sum(len(token) if isinstance(token, str) else 1 for token in piece)


def _regular(piece: Tokens) -> re.Pattern[str]:
    """A piece has a fixed length: the expression needs no backtracking."""
    source = "".join(re.escape(token) if isinstance(token, str) else "." for token in piece)
    return re.compile(source, re.DOTALL)
