"""Summaries and digests case by case: what each structure tells apart, sizes, and octets from the air."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import WireError
from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.strategy.odmrp.summary.bloom import decode_bits, encode_bits
from roamcast.strategy.odmrp.summary.cells import element_of
from roamcast.strategy.odmrp.summary.entry import ELEMENTS_MAX, TYPE_KEY
from roamcast.strategy.odmrp.summary.geometry import DEFAULT
from roamcast.strategy.odmrp.summary.summary import EventDigest, Summary, SummaryOptions, SummaryTable

# Figure 3 of the paper.
WOODS = Event(
    1,
    1,
    {"player": "woods", "hole": 15, "holescore": 4, "totalscore": 52, "currentrank": 2},
    type="PGMFORUM",
)
PALMER = Event(
    1, 2, {"player": "palmer", "hole": 2, "holescore": 4, "totalscore": 8, "currentrank": 7}, type="PGMFORUM"
)


def matches(text: str, event: Event) -> bool:
    return Summary.of([Filter.sql(text)]).matches(EventDigest.of(event))


def event(topic: str = "", type: str = "", **attributes: Value) -> Event:
    return Event(1, 1, attributes, topic=topic, type=type)


def test_the_paper_s_messages_find_their_subscribers() -> None:
    woods = Summary.of([Filter.of_type("PGMFORUM") & Filter.sql("player = 'woods'")])
    back_nine = Summary.of([Filter.of_type("PGMFORUM") & Filter.sql("hole BETWEEN 10 AND 18")])
    assert woods.matches(EventDigest.of(WOODS)) and not woods.matches(EventDigest.of(PALMER))
    assert back_nine.matches(EventDigest.of(WOODS)) and not back_nine.matches(EventDigest.of(PALMER))


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("a = 'woods'", ["woods"], ["wood", "Woods", "", 1, True, None]),  # SC_X
        ("a IN ('woods', 'els')", ["woods", "els"], ["palmer", None]),  # EC
        ("a = TRUE", [True], [False, 1, "TRUE", None]),  # EC
        ("a LIKE 'wo%'", ["woods", "wo", "wot"], ["palmer", "w", "", None]),  # SC_L
        ("a LIKE '%er'", ["palmer", "er"], ["woods", "r", None]),  # SC_R
        ("a LIKE 'pa%er'", ["palmer"], ["pan", "summer", None]),  # both
        ("a LIKE 'tiger %'", ["tiger woods"], ["trigger", "tigon"]),  # cut to four characters
        ("a LIKE 'tiger %'", ["tigers"], []),  # which lets this in
        ("a > 'm' AND a < 'n'", ["mo"], ["no", "l", None]),  # the common beginning
        ("a > 5", [6, 5.001, float("inf")], [5, 4.9, -6, 0, None, "6"]),  # AC
        ("a < 60", [59, 59.999, -1e300], [60, 65.5, 1e9]),
        ("a BETWEEN 10 AND 18", [10, 18, 12.5], [9, 19, 9.5, 18.5]),
        ("a = 15", [15, 15.0], [14, 16, 15.001, "15"]),
        ("a IN (1, 3, 5)", [1, 3, 5], [2, 4, 0]),
        ("a <> 5", [4, 6, 5.001], [5, "x", None]),
        ("a > -0.5 AND a <= 0.25", [0, 0.25, -0.499], [-0.6, 0.3, 1, -1]),
        ("a IS NOT NULL", [0, "", False], [None]),
        ("a NOT LIKE 'wo%'", ["woods", "x"], [None, 5]),  # that it is a text at all
        ("a IS NULL", [None, 1], []),  # nothing to look up
    ],
)
def test_what_each_structure_tells_apart(text: str, yes: list[Value], no: list[Value]) -> None:
    for value in yes:
        assert matches(text, event(a=value)), value
    for value in no:
        assert not matches(text, event(a=value)), value


def test_types_and_topics() -> None:
    fire = Summary.of([Filter.of_type("alarm.fire")])
    assert fire.matches(EventDigest.of(event(type="alarm.fire.oven")))
    assert not fire.matches(EventDigest.of(event(type="alarm"))) and not fire.matches(EventDigest.of(event()))
    deep = Summary.of([Filter.of_type("a.b.c.d.e.f.g.h.i.j")])  # asks for the first eight levels
    assert deep.matches(EventDigest.of(event(type="a.b.c.d.e.f.g.h.x")))
    assert not deep.matches(EventDigest.of(event(type="a.b.c.d.e.f.g")))
    scores = Summary.of([Filter.topic("golf/+/score")])
    assert scores.matches(EventDigest.of(event("golf/15/score")))
    assert not scores.matches(EventDigest.of(event("golf/15/weather")))
    assert not scores.matches(EventDigest.of(event("chess/15/score")))
    assert not scores.matches(EventDigest.of(event()))
    below = Summary.of([Filter.topic("golf/#")])
    assert below.matches(EventDigest.of(event("golf"))) and not below.matches(EventDigest.of(event("chess")))


def test_xpath_subscriptions_are_summarised_like_any_other() -> None:
    wanted = Filter.xpath("/PGMFORUM[player = 'woods' and hole > 10]")
    summary = Summary.of([wanted])
    assert wanted.matches(WOODS) and summary.matches(EventDigest.of(WOODS))
    assert not summary.matches(EventDigest.of(PALMER))
    assert not summary.matches(EventDigest.of(Event(1, 1, WOODS.attributes, type="WEATHER")))


def test_an_and_needs_all_its_conditions_and_an_or_one() -> None:
    both = "player = 'woods' AND hole = 15"
    assert matches(both, WOODS)
    assert not matches(both, event(player="woods", hole=14)) and not matches(both, event(player="woods"))
    either = "player = 'woods' OR hole = 2"
    assert matches(either, WOODS) and matches(either, PALMER)
    assert not matches(either, event(player="els", hole=3))


def test_values_that_belong_together_stay_together_in_a_merged_entry() -> None:
    pairs = [("woods", 15), ("palmer", 2), ("els", 7)]
    options = SummaryOptions(entries=1)
    summary = Summary.of([Filter.sql(f"player = '{who}' AND hole = {hole}") for who, hole in pairs], options)
    assert len(summary.entries) == 1
    for who, _ in pairs:
        for _, hole in pairs:
            digest = EventDigest.of(event(player=who, hole=hole), options)
            assert summary.matches(digest) is ((who, hole) in pairs)
    # The paper's EL makes the difference: without the pair's vector, every combination passes.
    pair = [key for key, _ in summary.entries[0].constraints if key >> 16]
    assert len(pair) == 1


def test_merging_keeps_what_entries_have_in_common() -> None:
    summary = Summary.of([Filter.sql("a = 1 AND b = 1"), Filter.sql("a = 2 AND c = 1")]).reduced(1)
    assert [key for key, _ in summary.entries[0].constraints] == [element_of("a")]
    assert summary.matches(EventDigest.of(event(a=2))) and not summary.matches(
        EventDigest.of(event(a=3, b=1, c=1))
    )
    nothing_shared = Summary.of([Filter.sql("a = 1"), Filter.sql("b = 1")]).reduced(1)
    assert nothing_shared.matches(EventDigest.of(event()))


def test_the_most_similar_entries_merge_first() -> None:
    texts = ["a = 1 AND b = 'x'", "a = 2 AND b = 'x'", "c > 100", "d LIKE 'q%'"]
    summary = Summary.of([Filter.sql(text) for text in texts]).reduced(3)
    assert len(summary.entries) == 3
    assert not summary.matches(EventDigest.of(event(a=3, b="x", c=1)))  # c and d are as sharp as before
    assert not summary.matches(EventDigest.of(event(a=1, b="y")))


def test_covered_subscriptions_add_nothing() -> None:
    wide, narrow = Filter.sql("player = 'woods'"), Filter.sql("player = 'woods' AND hole = 15 AND x > 3")
    assert Summary.of([wide, narrow]) == Summary.of([wide])
    assert Summary.of([wide]).covers(Summary.of([narrow]))
    assert not Summary.of([narrow]).covers(Summary.of([wide]))


def test_no_subscription_matches_nothing_and_everything_matches_all() -> None:
    empty, everything = Summary.of([]), Summary.of([Filter.everything()])
    assert empty.is_empty and not empty.matches(EventDigest.of(WOODS)) and empty.vector == 0
    assert Summary.of([Filter.sql("a < 3 AND a > 5")]).is_empty
    assert everything.matches(EventDigest.of(event())) and everything.covers(
        Summary.of([Filter.sql("a = 1")])
    )
    # All that it lets pass: the type's bits and the elements', while associations need two elements.
    assert everything.vector.bit_count() == DEFAULT.type_bits + DEFAULT.geometry.element_bits
    assert Summary.decode(empty.encode()) == empty and len(empty.encode()) == 4


def test_many_elements_and_many_alternatives_are_bounded() -> None:
    many = Filter.sql(" AND ".join(f"x{number} = {number}" for number in range(20)))
    (entry,) = Summary.of([many]).entries
    assert len(entry.elements) == ELEMENTS_MAX
    alternatives = " AND ".join(f"(x{number} = 1 OR y{number} = 1)" for number in range(10))  # 2^10 ANDs
    summary = Summary.of([Filter.sql(f"a = 1 AND {alternatives}")])
    assert len(summary.entries) == 1 and summary.entries[0].elements == [element_of("a")]
    assert len(Summary.of([Filter.sql(f"a = {n} AND b > {n}") for n in range(100)]).entries) == 32


def test_sizes_on_the_wire() -> None:
    """The figures of docs/protocols/odmrp-summaries.md."""
    golf = Filter.of_type("PGMFORUM")
    texts = ["player = 'woods'", "hole BETWEEN 10 AND 18", "player = 'woods' AND hole BETWEEN 10 AND 18"]
    sizes = [len(Summary.of([golf & Filter.sql(text)]).encode()) for text in texts]
    assert sizes == [18, 42, 55]
    assert len(EventDigest.of(WOODS).encode()) == 2 + 3 + 2 + (3 + 3 + 2 * 3 * 3) + 4 * 6


def test_the_documented_example_is_true() -> None:
    page = Path(__file__).parents[4] / "docs" / "protocols" / "odmrp-summaries.md"
    example = page.read_text().split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["summary"].matches(EventDigest.of(names["event"]))
    assert Summary.decode(names["summary"].encode()) == names["summary"]


def test_colliding_attributes_are_one_element_with_two_values() -> None:
    one, other = colliding_names()
    assert element_of(one) == element_of(other)
    wanted = Filter.sql(f"{one} = 1 AND {other} = 'x' AND z = 2")
    summary = Summary.of([wanted])
    one_way: dict[str, Value] = {one: 1, other: "x", "z": 2}
    other_way: dict[str, Value] = {"z": 2, other: "x", one: 1}
    for attributes in (one_way, other_way):
        published = Event(1, 1, attributes)
        assert wanted.matches(published) and summary.matches(EventDigest.of(published))
    assert not summary.matches(EventDigest.of(event(z=2)))


def colliding_names() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for number in range(2000):
        name = f"n{number}"
        if element_of(name) in seen:
            return seen[element_of(name)], name
        seen[element_of(name)] = name
    raise AssertionError("no two of 2000 names share an element")


def test_a_table_follows_its_summaries() -> None:
    table: SummaryTable[str] = SummaryTable()
    digest = EventDigest.of(WOODS)
    assert table.matching(digest) == [] and len(table) == 0
    woods, palmer = (Summary.of([Filter.sql(f"player = '{who}'")]) for who in ("woods", "palmer"))
    for number in range(100):  # beyond what is tried one by one
        table.add(f"node {number:03}", palmer)
    table.add("node 050", woods)
    table.add("a", woods)
    assert table.matching(digest) == ["a", "node 050"]
    table.remove("a")
    table.remove("never there")
    assert table.matching(digest) == ["node 050"] and "a" not in table and len(table) == 100
    table.add("node 050", palmer)
    assert table.matching(digest) == []


# Octets.


def test_a_summary_survives_the_wire_with_every_structure() -> None:
    texts = [
        "a = 'x' AND b IN ('y', 'z') AND c < 5 AND d LIKE 'p%s' AND e = TRUE",
        "a IN (" + ", ".join(f"'{number}'" for number in range(60)) + ")",  # dense
    ]
    summary = Summary.of([Filter.of_type("t") & Filter.sql(text) for text in texts] + [Filter.topic("x/#")])
    again = Summary.decode(summary.encode())
    assert again == summary and again.entries == summary.entries and hash(again) == hash(summary)
    assert [TYPE_KEY in entry.by_key for entry in again.entries] == [False, True, True]


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        ("", "summary at octet 0 needs at least 4 octets, has 0"),
        ("02", "summary at octet 0 needs at least 4 octets, has 1"),
        ("02 F 00", "summary version at octet 0 is 2, not 1"),
        ("01 1234 00", "summary sizes at octet 1 are 1234, this node has"),
        ("01 F 00 00", "summary at octet 4 has 1 octets after its end"),
        ("01 F 01", "entry at octet 4 needs 1 octets, 0 left"),
        ("01 F 01 09", "entry at octet 4 has 9 elements, at most 8 are allowed"),
        ("01 F 01 80", "EN at octet 5 is missing"),
        ("01 F 01 80 02 05", "EN at octet 6 ends before its 2 bits"),
        ("01 F 01 80 01 FF FF FF", "EN at octet 6 ends before its 1 bits"),
        ("01 F 01 80 01 FE", "EN at octet 6 ends before its 1 bits"),
        ("01 F 01 80 01 E0 00", "EN at octet 6 names bit 192 of 128"),
        ("01 F 01 80 01 01", "EN at octet 6 is not padded with zeros"),
        ("01 F 01 80 00 00", "EN at octet 5 needs 17 octets, 2 left"),
        ("01 F 01 80 00" + " 00" * 16, "EN at octet 5 is empty or has bits beyond its 128"),
        ("01 F 01 01 0005 00", "structures at octet 7 is 0, not 1 to 63"),
        ("01 F 01 01 0005 80", "structures at octet 7 is 128, not 1 to 63"),
        ("01 F 01 01 0000 01 01 00", "element at octet 5 0 does not follow in ascending order"),
        ("01 F 01 02 0005 01 01 00 0005 01 01 00", "element at octet 10 5 does not follow"),
        ("01 F 01 02 0005 01 01 00 0006 01 01 00 02", "associations at octet 15 names a pair beyond"),
        ("01 F 02 00 00", "entry at octet 5 does not follow in ascending order"),
    ],
)
def test_octets_that_are_no_summary_are_refused_in_one_line(octets: str, problem: str) -> None:
    data = bytes.fromhex(octets.replace(" F ", f" {DEFAULT.geometry.fingerprint:04x} "))
    with pytest.raises(WireError) as caught:
        Summary.decode(data)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_summaries_of_other_sizes_are_refused() -> None:
    other = SummaryOptions(arithmetic_bits=512)
    with pytest.raises(WireError, match="summary sizes at octet 1"):
        Summary.decode(Summary.of([Filter.sql("a = 1")], other).encode())


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        ("", "digest version at octet 0 needs 1 octets, 0 left"),
        ("02 00 0000", "digest version at octet 0 is 2, not 1"),
        ("01 09", "types at octet 1 number 9, at most 8 are allowed"),
        ("01 01 0000", "type at octet 2 needs 3 octets, 2 left"),
        ("01 00 0102", "elements at octet 2 number 258, at most 257 are allowed"),
        ("01 00 0001 0000 00", "element at octet 4 0 has the unknown kind 0"),
        ("01 00 0001 0007 05", "element at octet 4 7 has the unknown kind 5"),
        ("01 00 0001 0007 12 000000", "element at octet 4 7 has the unknown kind 18"),
        ("01 00 0001 0007 54" + " 000000" * 11, "element at octet 4 7 has the unknown kind 84"),
        ("01 00 0001 0007 02 0000", "value at octet 7 needs 3 octets, 2 left"),
        ("01 00 0000 00", "digest at octet 4 has 1 octets after its end"),
    ],
)
def test_octets_that_are_no_digest_are_refused_in_one_line(octets: str, problem: str) -> None:
    with pytest.raises(WireError) as caught:
        EventDigest.decode(bytes.fromhex(octets))
    assert str(caught.value) == problem


SAMPLES = [
    Summary.of([Filter.sql(text)]).encode()
    for text in ("a = 'x' AND b < 5", "a LIKE 'x%y' OR c IN (1, 2, 3)", "d = TRUE AND e = 'q' AND f > 1")
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4))
def test_damaged_summaries_are_summaries_or_wire_errors(sample: bytes, damage: list[tuple[int, int]]) -> None:
    data = bytearray(sample)
    for at, octet in damage:
        data[at % len(data)] = octet
    with suppress(WireError):
        summary = Summary.decode(bytes(data))
        summary.matches(EventDigest.of(WOODS))
        assert Summary.decode(summary.encode()) == summary


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_octets_are_read_or_refused(data: bytes, with_header: bool) -> None:
    header = b"\x01" + DEFAULT.geometry.fingerprint.to_bytes(2, "big") if with_header else b""
    with suppress(WireError):
        summary = Summary.decode(header + data)
        assert Summary.decode(summary.encode()) == summary
    with suppress(WireError):
        digest = EventDigest.decode(b"\x01" + data if with_header else data)
        assert EventDigest.decode(digest.encode()) == digest
        Summary.of([Filter.everything()]).matches(digest)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([8, 64, 128, 512, 8192]), st.data())
def test_bit_vectors_survive_the_wire(bits: int, data: st.DataObject) -> None:
    positions = data.draw(st.sets(st.integers(0, bits - 1), min_size=1, max_size=300))
    vector = sum(1 << position for position in positions)
    encoded = encode_bits(vector, bits)
    assert decode_bits(b"x" + encoded + b"x", 1, bits, "EN") == (vector, 1 + len(encoded))
    assert len(encoded) <= 1 + bits // 8
