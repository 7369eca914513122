"""Events that only their readers can read."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from roamcast.errors import EventError, InputError
from roamcast.event import (
    IDENTIFIER,
    PAYLOAD_BYTES_MAX,
    SEALED_TYPE,
    Event,
    EventClass,
    identifier_of,
    is_sealed,
)
from roamcast.sealing.content import OVERHEAD, ContentKey, ContentKeys

OURS, THEIRS = ContentKey(bytes(range(32))), ContentKey(bytes(32))
KEYS = ContentKeys(OURS)
CLEAR = Event(
    3,
    9,
    {"level": 5, "place": "hill 7"},
    b"come quickly",
    "alarms/north",
    "alarm.fire",
    EventClass.MEMORIZED,
    60_000_000,
    (4, 5),
    True,
)


def test_a_reader_gets_the_very_event_and_a_relay_sees_only_what_routing_needs() -> None:
    sealed = KEYS.seal(CLEAR, b"\x12\x34")
    assert sealed.id == CLEAR.id and sealed.lifetime == CLEAR.lifetime and sealed.destinations == (4, 5)
    assert (sealed.attributes, sealed.topic, sealed.type) == ({IDENTIFIER: "1234"}, "", SEALED_TYPE)
    assert identifier_of(sealed) == b"\x12\x34" and is_sealed(sealed)
    for secret in (b"quickly", b"hill 7", b"alarm", b"level"):
        assert secret not in sealed.payload
    assert KEYS.open(sealed) == CLEAR
    assert ContentKeys(THEIRS).open(sealed) is None
    assert ContentKeys(THEIRS, OURS).open(sealed) == CLEAR  # the first seals, all open
    assert KEYS.seal(CLEAR, b"").payload != KEYS.seal(CLEAR, b"").payload


@pytest.mark.parametrize(
    "change",
    [
        {"publisher": 4},
        {"sequence": 10},
        {"event_class": EventClass.REALTIME},
        {"lifetime": 1},
        {"destinations": (4,)},
        {"multimode": False},
        {"attributes": {IDENTIFIER: "ffff"}},
        {"attributes": {IDENTIFIER: "1234", "more": 1}},
        {"topic": "t"},
        {"type": ""},
    ],
)
def test_what_is_in_clear_cannot_be_changed(change: dict[str, Any]) -> None:
    sealed = KEYS.seal(CLEAR, b"\x12\x34")
    assert KEYS.open(replace(sealed, **change)) is None


def test_every_bit_of_the_payload_counts() -> None:
    sealed = KEYS.seal(Event(1, 1, {"a": 1}), b"")
    for bit in range(8 * len(sealed.payload)):
        flipped = bytearray(sealed.payload)
        flipped[bit // 8] ^= 1 << bit % 8
        assert KEYS.open(replace(sealed, payload=bytes(flipped))) is None
    for end in range(len(sealed.payload)):
        assert KEYS.open(replace(sealed, payload=sealed.payload[:end])) is None


@settings(max_examples=50)
@given(st.binary(max_size=200), st.sampled_from(["", "12", "zz", None, 5]))
def test_any_octets_are_not_opened(payload: bytes, identifier: str | int | None) -> None:
    event = Event(1, 1, {IDENTIFIER: identifier}, payload, type=SEALED_TYPE)
    assert KEYS.open(event) is None
    assert identifier_of(event) == (b"\x12" if identifier == "12" else b"")


def test_size_and_keys_have_their_limits() -> None:
    room = PAYLOAD_BYTES_MAX - OVERHEAD - 7  # of MessagePack around an empty event
    largest = KEYS.seal(Event(1, 1, {}, bytes(room)), b"")
    assert len(largest.payload) == PAYLOAD_BYTES_MAX and KEYS.open(largest) is not None
    with pytest.raises(EventError, match="event: has 59966 octets; at most 59965 can be sealed"):
        KEYS.seal(Event(1, 1, {}, bytes(room + 1)), b"")
    with pytest.raises(InputError, match="content keys: are 0"):
        ContentKeys()
    assert ContentKey.from_text(OURS.to_text()) == OURS and OURS.to_text().startswith("content:")
    with pytest.raises(InputError, match="content key: must begin with 'content:'"):
        ContentKey.from_text("group:AAAA")
