"""Filters as clients write them, and numbers in texts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import FilterError
from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.gateway.mqtt.mesh.content import parse_client_filter
from roamcast.gateway.mqtt.mesh.mapping import TooLarge, attributes_of, number_in, origin_of, text_of
from roamcast.gateway.mqtt.packets.values import Properties


def matches(text: str, **attributes: Value) -> bool:
    return parse_client_filter(text, True).wanted.matches(Event(1, 1, attributes, b"", "a/b"))


@pytest.mark.parametrize(
    ("text", "share", "topic_filter", "wanted"),
    [
        ("a/+", "", "a/+", Filter.topic("a/+")),
        ("$share/g/a/#", "g", "a/#", Filter.topic("a/#")),
        ("a/#?x=1", "", "a/#", Filter.topic("a/#") & Filter.sql("x = 1")),
        ("a?x>=1&y<=2.5&z<3", "", "a", Filter.topic("a") & Filter.sql("x >= 1 AND y <= 2.5 AND z < 3")),
        ("a?x=A b", "", "a", Filter.topic("a") & Filter.sql("x = 'A b'")),
        ("a?x=1%262&%3D=3", "", "a", Filter.topic("a") & Filter.sql("x = '1&2' AND `=` = 3")),
        ("a?x==b", "", "a", Filter.topic("a") & Filter.sql("x = '=b'")),
        ("$share/g/a?x>1", "g", "a", Filter.topic("a") & Filter.sql("x > 1")),
        ("$where/x>1&y=2/a/#", "", "a/#", Filter.topic("a/#") & Filter.sql("x > 1 AND y = 2")),
        ("$where/x=u%2Fv/a/+", "", "a/+", Filter.topic("a/+") & Filter.sql("x = 'u/v'")),
        ("$share/g/$where/x>1/#", "g", "#", Filter.topic("#") & Filter.sql("x > 1")),
    ],
)
def test_a_text_is_taken_apart(text: str, share: str, topic_filter: str, wanted: Filter) -> None:
    found = parse_client_filter(text, True)
    assert (found.share, found.topic_filter, found.wanted) == (share, topic_filter, wanted)
    assert found.on_topic == Filter.topic(topic_filter)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a?",
            "a?x",
            "a?=1",
            "a?x=1&",
            "a?&x=1",
            "?x=1",
            "a/#/b?x=1",
            "$share/g",
            "$where/x>1",
            "$where//a",
        ),
        *("a?" + "&".join(f"x{n}=1" for n in range(65)), f"a?{'n' * 200}=1", "a?%20=1", "$where//a"),
    ],
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        parse_client_filter(text, True)


def test_without_content_filters_the_text_is_a_topic_filter() -> None:
    for text in ("a?x=1", "$where/x=1/a"):
        assert parse_client_filter(text, False).wanted == Filter.topic(text)


def test_operators_on_numbers_texts_and_truth_values() -> None:
    assert matches("a/b?x=5", x=5) and matches("a/b?x=5", x=5.0) and not matches("a/b?x=5", x="5 m")
    assert matches("a/b?x<10", x=9.5) and not matches("a/b?x<10", x="9")
    assert matches("a/b?x>b", x="c") and not matches("a/b?x>b", x="a")
    assert matches("a/b?x=true", x="true") and matches("a/b?x=true", x=True)
    assert matches("a/b?x=false", x=False) and not matches("a/b?x=false", x=True)
    assert not matches("a/c?x=5", x=5)


@pytest.mark.parametrize("operator", ["=", "!=", "<", ">", "<=", ">="])
@pytest.mark.parametrize("value", ["5", "abc"])
def test_an_absent_property_matches_nothing(operator: str, value: str) -> None:
    assert not matches(f"a/b?x{operator}{value}", y=1)


def test_unequal_is_present_and_different_whatever_the_kind() -> None:
    assert matches("a/b?x!=5", x=6) and matches("a/b?x!=5", x="hot") and not matches("a/b?x!=5", x=5.0)
    assert matches("a/b?x!=hot", x=-1) and matches("a/b?x!=hot", x=0) and matches("a/b?x!=hot", x=1.5)
    assert matches("a/b?x!=hot", x="cold") and not matches("a/b?x!=hot", x="hot")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-7", -7),
        ("2.50", 2.5),
        ("1e3", 1000.0),
        ("-0.5E-2", -0.005),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_texts_that_are_numbers(text: str, number: float) -> None:
    found = number_in(text)
    assert found == number and type(found) is type(number)


@pytest.mark.parametrize(
    "text",
    [
        *("", " 1", "1 ", "+1", "007", ".5", "1.", "0x10", "1_000", "nan", "inf", "1e999", "٣", "1e", "--1"),
        *(str(2**63), "1" * 50),
    ],
)
def test_texts_that_are_not(text: str) -> None:
    assert number_in(text) is None


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
contents = (
    names | st.integers().map(str) | st.floats(allow_nan=False).map(str) | st.sampled_from(["1.50", "01"])
)
pairs = st.lists(st.tuples(names | st.sampled_from(["mqtt", "mqtt.at", "a"]), contents), max_size=5)


@given(pairs, st.integers(0, 2), st.booleans(), st.none() | st.binary(max_size=9), st.none() | names)
def test_a_message_comes_back_from_its_event_as_it_was(
    user: list[tuple[str, str]], qos: int, retained: bool, correlation: bytes | None, content: str | None
) -> None:
    properties = Properties(user_properties=user, correlation_data=correlation, content_type=content)
    attributes = attributes_of(qos, retained, properties)
    assert all(not isinstance(value, float) or math.isfinite(value) for value in attributes.values())
    origin = origin_of(Event(1, 1, attributes, b"", "t"))
    assert (origin.qos, origin.retained) == (qos, retained)
    assert (origin.properties or Properties()) == properties


values = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | names
keys = names | st.sampled_from(
    [
        "a\0b",
        "mqtt",
        "mqtt.user",
        "mqtt.format",
        "mqtt.correlation",
        "mqtt.expiry",
        "mqtt.response_topic",
        "mqtt.at",
    ]
)


@given(st.dictionaries(keys, values, max_size=8))
def test_any_event_of_any_node_can_be_shown(attributes: dict[str, Value]) -> None:
    from roamcast.gateway.mqtt.mesh.mapping import MeshMessage
    from roamcast.gateway.mqtt.packets.codec import decode_publish
    from roamcast.gateway.mqtt.packets.values import V5

    message = MeshMessage.of_event(Event(1, 1, attributes, b"", "t"), 0)
    packet = message.packet(V5, 0)
    decode_publish(packet[0], packet[2 if packet[1] < 0x80 else 3 :], V5)


def test_what_no_event_can_carry_is_too_large() -> None:
    for properties in (
        Properties(content_type="x" * 5_000),
        Properties(correlation_data=bytes(5_000)),
        Properties(user_properties=[("x" * 200, "")]),
        Properties(user_properties=[("a", "1"), ("a", "x" * 4_090)]),
    ):
        with pytest.raises(TooLarge):
            attributes_of(0, False, properties)


def test_attributes_are_shown_as_texts() -> None:
    assert [text_of(value) for value in (True, False, 3, 2.5, "x\0y")] == ["true", "false", "3", "2.5", "xy"]
