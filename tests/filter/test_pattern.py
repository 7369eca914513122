"""LIKE patterns against plain regular expressions, over all short patterns and texts."""

import itertools
import re

import pytest

from roamcast.filter.pattern import (
    after_prefix,
    matcher,
    pattern_covers,
    patterns_exclude,
    prefix,
    spelling,
    tokens_of,
)

PATTERNS = ["".join(each) for count in range(5) for each in itertools.product("ab%_", repeat=count)]
TEXTS = ["".join(each) for count in range(5) for each in itertools.product("abc", repeat=count)]


def matched_by_regular_expression(pattern: str) -> frozenset[str]:
    source = "".join({"%": ".*", "_": "."}.get(character, character) for character in pattern)
    return frozenset(text for text in TEXTS if re.fullmatch(source, text))


MATCHED = {pattern: matched_by_regular_expression(pattern) for pattern in PATTERNS}


def test_every_short_pattern_matches_what_a_regular_expression_matches() -> None:
    for pattern in PATTERNS:
        matches = matcher(tokens_of(pattern, ""))
        assert frozenset(filter(matches, TEXTS)) == MATCHED[pattern], pattern


def test_a_canonical_spelling_reads_back_and_matches_the_same() -> None:
    for pattern in PATTERNS:
        tokens = tokens_of(pattern, "")
        again, escape = spelling(tokens)
        assert escape == "" and tokens_of(again, escape) == tokens
        assert MATCHED[again] == MATCHED[pattern]
    assert spelling(tokens_of("a#%#_##!%", "#")) == ("a!%!_#!!%", "!")
    assert tokens_of("a!%!_#!!%", "!") == tokens_of("a#%#_##!%", "#")


def test_covering_and_exclusion_are_sound() -> None:
    short = [pattern for pattern in PATTERNS if len(pattern) <= 3]
    found = missed = 0
    for wide, narrow in itertools.product(short, repeat=2):
        inclusion = MATCHED[narrow] <= MATCHED[wide]
        if pattern_covers(tokens_of(wide, ""), tokens_of(narrow, "")):
            assert inclusion, (wide, narrow)
            found += 1
        else:
            missed += inclusion
        if patterns_exclude(tokens_of(wide, ""), tokens_of(narrow, "")):
            assert not MATCHED[wide] & MATCHED[narrow], (wide, narrow)
    assert found > 10 * missed, (found, missed)  # what it misses is the rare kind: `_%` over `%a`


def test_a_prefix_ends_where_the_next_text_begins() -> None:
    assert prefix(tokens_of("ab%c", "")) == "ab" and prefix(tokens_of("%c", "")) == ""
    assert after_prefix("ab") == "ac" and after_prefix("") is None
    assert after_prefix("a\U0010ffff") == "b" and after_prefix("\U0010ffff") is None


@pytest.mark.parametrize(
    ("pattern", "escape"), [("a!", "!"), ("a!b", "!"), ("a", "%"), ("a", "_"), ("a", "xy")]
)
def test_escapes_that_mean_nothing_are_refused(pattern: str, escape: str) -> None:
    with pytest.raises(ValueError, match="escape"):
        tokens_of(pattern, escape)


@pytest.mark.timeout(10)
def test_a_hostile_pattern_costs_no_more_than_its_length_times_the_text() -> None:
    matches = matcher(tokens_of("%a_" * 1300 + "%b", ""))
    assert not matches("a" * 4096)
    assert matches("a" * 4095 + "b")
