from contextlib import suppress
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import WireError
from roamcast.event import Event, Value
from roamcast.strategy.flooding import CODEC, Flood
from roamcast.underlay import beacons
from roamcast.wire import Codec


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    number: Annotated[int, msgspec.Meta(ge=0)]


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=2, forbid_unknown_fields=True):
    names: Annotated[tuple[str, ...], msgspec.Meta(max_length=3)]


codec: Codec[Ping | Pong] = Codec("ping", 1, Ping | Pong, bytes_max=64)


def test_the_form_is_a_version_octet_and_an_array_with_its_tag() -> None:
    # By hand: version 1; fixarray of 2; tag 1; positive fixint 5.
    assert codec.encode(Ping(5)) == bytes.fromhex("01 92 01 05")
    assert codec.decode(bytes.fromhex("01 92 02 91 a1 78")) == Pong(("x",))


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        ("", "is empty"),
        ("02 92 01 05", "has version 2, this node speaks 1"),
        ("01 92 01", "truncated"),
        ("01 92 01 05 00", "trailing"),
        ("01 93 01 05 06", "length"),
        ("01 92 03 05", "Invalid value 3"),
        ("01 92 01 ff", ">= 0"),
        ("01 92 01 a1 78", "Expected `int`"),
        ("01 92 02 94 a0 a0 a0 a0", "length <= 3"),
        ("01 92 02 dd ff ff ff ff", "length <= 3"),
        ("01" + "91" * 63, ""),
        ("01" + "00" * 64, "has 65 octets, at most 64"),
    ],
)
def test_what_is_no_message_is_refused_with_its_reason(octets: str, problem: str) -> None:
    with pytest.raises(WireError, match=r".*") as caught:
        codec.decode(bytes.fromhex(octets))
    assert problem in str(caught.value)


@given(st.binary(max_size=200))
def test_any_octets_are_a_message_or_a_wire_error(data: bytes) -> None:
    for each in (codec, CODEC, beacons.CODEC):
        with suppress(WireError):
            each.decode(data)
        with suppress(WireError):
            each.decode(b"\x01" + data)


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_flood_is_a_message_or_a_wire_error(payload: bytes, at: int, octet: int) -> None:
    whole = CODEC.encode(Flood(Event(3, 4, {"level": 5, "name": "x"}, payload), 1, 2))
    damaged = bytearray(whole)
    damaged[at % len(whole)] = octet
    with suppress(WireError):
        CODEC.decode(bytes(damaged))
    with suppress(WireError):
        CODEC.decode(whole[: at % len(whole)])


@given(
    st.dictionaries(
        st.text(max_size=20),
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
        max_size=8,
    ),
    st.binary(max_size=100),
)
def test_an_event_comes_back_as_it_went(attributes: dict[str, Value], payload: bytes) -> None:
    flood = Flood(Event(1, 2, attributes, payload, topic="a/b", destinations=(1, 2)), 7, 8)
    assert CODEC.decode(CODEC.encode(flood)) == flood


def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack() -> None:
    with pytest.raises(WireError):
        CODEC.decode(b"\x01" + b"\x91" * 60_000)
