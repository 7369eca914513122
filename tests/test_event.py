"""What can be published is what every other node's decoder will take."""

from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import EventError
from roamcast.event import CONTENT_BYTES_MAX, Publication, Value
from roamcast.wire.codec import FRAME_BYTES_MAX


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"payload": bytes(16 * 1024 * 1024 + 1)}, "16777217 octets"),
        ({"payload": bytes(60_001), "attributes": {"a": "x" * 3000}}, "beside a payload"),
        ({"topic": "x" * 4097}, "4097 characters"),
        ({"type": "x" * 129}, "129 characters"),
        ({"attributes": {"x" * 129: 1}}, "attribute name"),
        ({"attributes": {"a": "x" * 4097}}, "'a'"),
        ({"attributes": {"a": 2**64}}, "64 bits"),
        ({"attributes": {"a": float("inf")}}, "finite"),
        ({"attributes": {"a": "\ud800"}}, "surrogate"),
        ({"attributes": {"a": [1]}}, "is a list"),
        ({"attributes": {"a": StrEnum("Kind", ["X"]).X}}, "is a Kind"),  # type: ignore[attr-defined]
        ({"attributes": {1: 1}}, "attribute name"),
        ({"payload": "text"}, "is a str; allowed: bytes"),
        ({"topic": 5}, "is a int"),
        ({"topic": "a/+"}, "wildcards"),
        ({"topic": "a\0"}, "U\\+0000"),
        ({"lifetime": -1}, "lifetime"),
        ({"destinations": (2**63,)}, "destinations"),
        ({"attributes": {str(n): 0 for n in range(257)}}, "257"),
        ({"destinations": tuple(range(1025))}, "1025"),
        ({"attributes": {str(n): "é" * 4000 for n in range(8)}}, "in all"),
    ],
)
def test_what_can_be_no_event_is_refused_in_one_line(parts: dict[str, Any], line: str) -> None:
    with pytest.raises(EventError, match=line) as refused:
        Publication(**parts)
    assert "\n" not in str(refused.value)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=20),
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=30),
        max_size=8,
    ),
    st.binary(max_size=60),
    st.text(max_size=20),
)
def test_what_is_accepted_survives_the_wire(attributes: dict[str, Any], payload: bytes, topic: str) -> None:
    try:
        publication = Publication(attributes, payload, topic)
    except EventError:
        return
    for value in (publication, publication.numbered(1, 2)):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value)) == value


def test_what_was_refused_is_refused_by_the_decoder_too() -> None:
    good = msgspec.msgpack.encode(Publication(topic="a!"))
    with pytest.raises(msgspec.ValidationError, match="wildcards"):
        msgspec.msgpack.decode(good.replace(b"a!", b"a#"), type=Publication)


def test_the_largest_content_fits_a_frame() -> None:
    attributes: dict[str, Any] = {f"{n:04}": "x" * 100 for n in range(15)}
    payload = bytes(CONTENT_BYTES_MAX - 15 * (4 + 100 + 9) - 305)
    largest = Publication(attributes, payload, "t" * 300, "type")
    assert len(msgspec.msgpack.encode(largest.numbered(2**31, 2**40))) < FRAME_BYTES_MAX - 1_000


def test_an_event_has_attributes_of_its_own() -> None:
    for value in (1, True, 1.0, 1):  # the same key for a dictionary
        given: dict[str, Value] = {"a": value}
        event = Publication(given).numbered(1, 1)
        given["a"] = 2
        assert event.attributes == {"a": value}
        assert type(event.attributes["a"]) is type(value)
    assert Publication({"a": 1}).numbered(1, 1).attributes is Publication({"a": 1}).numbered(1, 2).attributes
