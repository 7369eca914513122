"""Documents as event content and back, and documents that come from the air."""

import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import WireError
from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.wire.codec import Codec
from roamcast.xml import (
    DOCUMENT_BYTES_MAX,
    Schema,
    XmlError,
    document_of,
    event_of,
    load_document,
    read,
    write,
)

GOLF = Path(__file__).parents[2] / "examples" / "golf"
FORUM = Schema.load(GOLF / "forum.xsd")
WOODS = load_document(GOLF / "woods-at-15.xml")
PALMER = load_document(GOLF / "palmer-at-2.xml")


def test_the_golf_examples_hold_what_figure_3_shows() -> None:
    woods, palmer = read(WOODS, FORUM), read(PALMER, FORUM)
    assert woods.type == palmer.type == "PGMFORUM" and woods.payload == WOODS
    score = ("@id", "player", "hole", "holescore", "totalscore", "currentrank")
    assert [woods.attributes[name] for name in score] == ["001", "woods", 15, 4, 52, 2]
    assert [palmer.attributes[name] for name in score] == ["002", "palmer", 2, 4, 8, 7]


@pytest.mark.parametrize(
    ("xpath", "woods", "palmer"),
    [
        ("/PGMFORUM[player = 'woods' and hole > 10]", True, False),
        ("//player[. = 'palmer']", False, True),
        ("/PGMFORUM/hole[. >= 15]", True, False),
        ("/PGMFORUM[@id = '002']", False, True),
        ("/PGMFORUM[not(message)]", False, True),
        ("/PGMFORUM[contains(message, 'bunker')]", True, False),
        ("/PGMFORUM[currentrank < 5 or player = 'palmer']", True, True),
        ("/PGMFORUM[starts-with(@timestamp, '2003-02-27')]", True, True),
        ("/PGMFORUM[totalscore > 60]", False, False),
        ("/other", False, False),
    ],
)
def test_golf_subscriptions_find_their_events(xpath: str, woods: bool, palmer: bool) -> None:
    wanted = Filter.xpath(xpath, None if xpath == "/other" else FORUM)
    found = tuple(wanted.matches(event_of(document, 1, 1, FORUM)) for document in (WOODS, PALMER))
    assert found == (woods, palmer)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("15", 15),
        ("-3", -3),
        (" 15\n", 15),
        ("20.0", 20.0),
        ("1.50", 1.5),
        ("-0.5", -0.5),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("007", "007"),
        ("+1", "+1"),
        ("1e3", "1e3"),
        ("1.", "1."),
        (".5", ".5"),
        ("-0", "-0"),
        ("0" * 50, "0" * 50),
        ("1." + "0" * 50, "1." + "0" * 50),
        ("true", "true"),
        ("NaN", "NaN"),
        ("", ""),
        ("١٥", "١٥"),  # digits, but not of XML Schema
    ],
)
def test_without_a_schema_only_plain_numbers_are_numbers(text: str, value: Value) -> None:
    found = read(f"<a><b>{text}</b></a>".encode()).attributes["b"]
    assert found == value and type(found) is type(value)


# Writing.


def test_a_written_document_follows_the_schema_s_order_and_is_read_back() -> None:
    attributes = read(WOODS, FORUM).attributes
    shuffled = dict(sorted(attributes.items(), reverse=True))
    document = write("PGMFORUM", shuffled, FORUM)
    assert read(document, FORUM).attributes == attributes
    assert b"<player>woods</player><hole>15</hole><holescore>4</holescore>" in document


def test_elements_around_others_need_not_be_given() -> None:
    document = write(
        "alarm", {"place/room": 'B <1> & "2"', "place/@wing": "it's\n", "level": 2, "none": None}
    )
    assert read(document).attributes == {
        "place": True,
        "place/@wing": "it's\n",
        "place/room": 'B <1> & "2"',
        "level": 2,
    }
    assert read(write("ping", {".": "now", "@id": "x"}, namespace="urn:x")).attributes == {
        ".": "now",
        "@id": "x",
    }


@pytest.mark.parametrize(
    ("type_", "attributes", "problem"),
    [
        ("a", {"b": "15"}, "`b` is '15', which is read back as 15; a schema gives types"),
        ("a", {"b": False}, "`b` is False, which is read back as 'false'"),
        ("a", {"b": True}, "`b` is True, which is read back as 'true'"),
        ("a", {"b": float("inf")}, "cannot be written: inf"),
        ("a", {"b": "\0"}, "cannot be written"),
        ("a", {"b c": "x"}, "cannot be written"),
        ("a", {"": "x"}, "cannot be written"),
        ("a", {"@": "x"}, "cannot be written"),
        ("a", {"b//c": "x"}, "cannot be written"),
        ("a", {".": "x", "b": "y"}, "has text beside elements"),
        ("a", {"b": "x", "b/c": "y"}, "has text beside elements"),
        ("a b", {}, "cannot be written"),
        ("a.b", {}, "must have no dot"),
        ("", {}, "cannot be written"),
        ("a", {f"b{number}": "x" for number in range(300)}, "more than 256"),
        ("a", {"b": "\r\n"}, ""),
    ],
)
def test_what_cannot_be_read_back_is_not_written(
    type_: str, attributes: dict[str, Value], problem: str
) -> None:
    if not problem:
        assert read(write(type_, attributes)).attributes == attributes
        return
    with pytest.raises(XmlError) as caught:
        write(type_, attributes)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("type_", "change", "problem"),
    [
        ("FORUM", {}, "the schema has no such type; it has PGMFORUM"),
        ("PGMFORUM", {"plyer": "woods"}, "the schema has no 'plyer' in it"),
        ("PGMFORUM", {"hole": 19}, "does not fit the schema"),
        ("PGMFORUM", {"hole": None}, "does not fit the schema"),
        ("PGMFORUM", {"hole": "15"}, "`hole` is '15', which is read back as 15"),
        ("PGMFORUM", {"hole": 15.5}, "does not fit the schema"),
        ("PGMFORUM", {"player": "  woods"}, "which is read back as 'woods'"),
    ],
)
def test_what_the_schema_does_not_allow_is_not_written(
    type_: str, change: dict[str, Value], problem: str
) -> None:
    with pytest.raises(XmlError) as caught:
        write(type_, {**read(WOODS, FORUM).attributes, **change}, FORUM)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


values = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9).map(
        lambda x: round(x, 6)
    )
    | st.text(st.characters(blacklist_categories=["Cs"], min_codepoint=32), max_size=12)
)
paths = st.sampled_from(["b", "@b", "c", "p/a", "p/@a", "p/q/a", "z-1", "ä", "p/r"])


@given(st.dictionaries(paths, values, max_size=9), st.sampled_from(["", "urn:x"]))
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read_back_or_refused(attributes: dict[str, Value], namespace: str) -> None:
    try:
        document = write("alarm", attributes, namespace=namespace)
    except XmlError:
        return
    found = read(document).attributes
    assert {path: found[path] for path in attributes} == attributes
    # Nothing is added but that the elements around are there, or that the root is empty.
    added = {path: value for path, value in found.items() if path not in attributes}
    assert added in ({".": ""}, dict.fromkeys(added, True))


# From the air.


@pytest.mark.parametrize("compress", [False, True])
def test_an_event_brings_its_document_whole(compress: bool) -> None:
    codec: Codec[Event] = Codec("event", 1, Event)
    sent = event_of(WOODS, 3, 7, FORUM, compress=compress)
    got = codec.decode(codec.encode(sent))
    assert document_of(got, FORUM) == WOODS
    assert (len(got.payload) < len(WOODS)) is compress


def test_a_document_that_compression_makes_longer_travels_as_it_is() -> None:
    assert event_of(b"<a/>", 1, 1, compress=True).payload == b"<a/>"


BOMB = zlib.compress(b"<a>" + b" " * 40_000_000 + b"</a>", 9)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"", "is not well-formed"),
        (b"no XML", "is not well-formed"),
        (PALMER, "is not the document that the event's type and attributes describe"),
        (WOODS.replace(b"<hole>15", b"<hole>16"), "is not the document"),
        (WOODS.replace(b"<hole>15", b"<hole>99"), "does not fit the schema"),
        (BOMB[:60_000], f"has more than {DOCUMENT_BYTES_MAX} octets when decompressed"),
        (zlib.compress(WOODS)[:-5], "is cut short or has octets behind its end"),
        (zlib.compress(WOODS) + b"x", "is cut short or has octets behind its end"),
        (b"\x78nonsense", "cannot be decompressed"),
        (b"<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>", "has a <!DOCTYPE"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_payload_that_is_not_the_event_s_document_is_a_wire_error(payload: bytes, problem: str) -> None:
    good = event_of(WOODS, 1, 1, FORUM)
    assert document_of(good, FORUM) == WOODS
    bad = Event(1, 1, good.attributes, payload, type=good.type)
    with pytest.raises(WireError) as caught:
        document_of(bad, FORUM)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_another_type_or_an_attribute_of_another_kind_is_not_the_document() -> None:
    good = event_of(WOODS, 1, 1, FORUM)
    for event in (
        Event(1, 1, good.attributes, WOODS, type="other"),
        Event(1, 1, {**good.attributes, "more": 1}, WOODS, type=good.type),
        Event(1, 1, {**good.attributes, "hole": True}, WOODS, type=good.type),
    ):
        with pytest.raises(WireError, match="is not the document"):
            document_of(event, FORUM)
