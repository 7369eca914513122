"""Sealed frames: any octets, every bit, every order."""

import pickle
import struct

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sealing.peers import GROUP, Peer, meet

from roamcast.errors import InputError, WireError
from roamcast.sealing import HANDSHAKE, OVERHEAD, GroupKey, Identity, KeyRing, Refusal, Sealer, SealError
from roamcast.sealing.frame import COUNTER_MAX, EPOCH_MAX, HEADER, PAYLOAD_MAX
from roamcast.sealing.opener import REACH, ReplayWindow
from roamcast.sealing.sealer import CountersExhaustedError


def pair(*, encrypt: bool = True) -> tuple[Peer, Peer]:
    a, b = Peer(1, encrypt=encrypt), Peer(2, encrypt=encrypt)
    meet(a, b)
    assert a.opener.proven() == [2] and b.opener.proven() == [1]
    return a, b


def test_a_frame_has_the_octets_that_the_documentation_states() -> None:
    """Made again here from the primitives, without our own code."""
    sealer = Sealer(Identity.generate(0x0102), KeyRing(GROUP), epoch=0x030405, first=0)
    frame = sealer.seal(7, b"hello", stream=2)
    key = HKDFExpand(SHA256(), 32, b"roamcast frame 1" + struct.pack("!II", 0x0102, 0x030405)).derive(
        bytes(range(32))
    )
    header = bytes([0x18, 7]) + struct.pack("!H", GROUP.id) + bytes.fromhex("00000102 00030405 0000000001")
    assert len(header) == 17 == HEADER.size
    assert frame == header + ChaCha20Poly1305(key).encrypt(header[5:], b"hello", header)
    assert len(frame) == len(b"hello") + OVERHEAD == 38


def test_without_encryption_the_payload_can_be_read_and_is_authenticated() -> None:
    a, b = pair(encrypt=False)
    frame = a.seal(b"in clear")
    assert b"in clear" in frame and len(frame) == 8 + OVERHEAD
    assert b.open(frame)[:3] == (1, 1, b"in clear")
    changed = a.seal(b"in clear").replace(b"clear", b"claer")
    assert b.refusal(changed) is Refusal.FORGED


@pytest.mark.parametrize("encrypt", [True, False])
def test_every_bit_counts(encrypt: bool) -> None:
    a, b = pair(encrypt=encrypt)
    frame = a.seal(b"payload")
    for bit in range(8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        assert b.refusal(bytes(flipped)) is not None, f"bit {bit}"
    for end in range(len(frame)):
        assert b.refusal(frame[:end]) is not None
    assert b.refusal(frame + b"\0") is Refusal.FORGED
    assert b.open(frame)[:3] == (1, 1, b"payload")  # and none of that took the real one away


@given(st.binary(max_size=200))
def test_any_octets_are_refused(data: bytes) -> None:
    _, b = PAIR
    with pytest.raises(SealError) as raised:
        b.open(data)
    assert isinstance(raised.value, WireError)


@given(st.binary(max_size=120), st.integers(0, 3), st.integers(0, 15))
def test_octets_in_the_form_of_a_frame_of_a_proven_sender_are_refused(
    rest: bytes, stream: int, low: int
) -> None:
    a, b = PAIR
    header = HEADER.pack(0x10 | stream << 2, HANDSHAKE, GROUP.id, a.node, a.epoch, 0, 10**6 + low)
    assert b.refusal(header + rest) in {Refusal.TOO_SHORT, Refusal.FORGED}


@given(st.binary(max_size=300))
def test_an_announcement_of_a_member_may_hold_anything(payload: bytes) -> None:
    """Sealed with the group key, but no announcement: only `SealError`, and the node goes on."""
    stranger, b = Peer(3), PAIR[1]
    assert b.refusal(stranger.seal(payload, HANDSHAKE)) is Refusal.BAD_ANNOUNCEMENT
    assert PAIR[0].refusal(PAIR[1].seal(payload, HANDSHAKE)) is Refusal.BAD_ANNOUNCEMENT


PAIR = pair()


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 3)), max_size=120))
def test_in_any_order_each_frame_is_accepted_once(order: list[tuple[int, int]]) -> None:
    """Counters are shared by the streams, windows are not: no order of arrival between streams matters."""
    a, b = PAIR
    frames = [[a.seal(bytes([stream, n]), stream=stream) for n in range(30)] for stream in range(4)]
    seen: set[tuple[int, int]] = set()
    for n, stream in order:
        expected = Refusal.REPLAYED if (n, stream) in seen else None
        assert b.refusal(frames[stream][n]) is expected
        seen.add((n, stream))


def test_a_frame_moved_to_another_stream_or_channel_is_forged() -> None:
    a, b = pair()
    frame = bytearray(a.seal(b"x"))
    frame[0] |= 1 << 2
    assert b.refusal(bytes(frame)) is Refusal.FORGED


@given(st.lists(st.integers(-10, 3 * REACH), max_size=80), st.integers(0, 5))
def test_the_window_agrees_with_a_set(counters: list[int], floor: int) -> None:
    window, seen, highest = ReplayWindow(floor), set(), floor
    for counter in counters:
        allowed = counter > floor and counter > highest - REACH and counter not in seen
        assert window.is_new(counter) == allowed
        if allowed:
            window.mark(counter)
            seen.add(counter)
            highest = max(highest, counter)


def test_a_frame_that_is_late_by_more_than_the_window_is_refused() -> None:
    a, b = pair()
    late, just_in_time = a.seal(b"late"), a.seal(b"in time")
    for _ in range(REACH - 2):
        a.seal(b"")
    b.open(a.seal(b"far ahead"))
    assert b.refusal(late) is Refusal.DISTANT
    assert b.open(just_in_time).payload == b"in time"


def test_a_node_without_the_key_is_not_heard() -> None:
    b, outsider = Peer(2), Peer(1, KeyRing(GroupKey(bytes(32))))
    meet(b, outsider)
    assert b.refusal(outsider.seal(b"x")) is Refusal.UNKNOWN_KEY
    assert b.opener.proven() == [] and not b.opener.announcement_due
    # The same id, by chance or by intent, does not help.
    frame = bytearray(outsider.seal(b"x"))
    frame[2:4] = GROUP.id.to_bytes(2, "big")
    assert b.refusal(bytes(frame)) is Refusal.FORGED


def test_counters_do_not_wrap() -> None:
    sealer = Sealer(Identity.generate(1), KeyRing(GROUP), epoch=EPOCH_MAX)
    sealer.counter = COUNTER_MAX - 1
    sealer.seal(1, b"the last one")
    with pytest.raises(CountersExhaustedError):
        sealer.seal(1, b"one too many")


def test_what_cannot_be_sealed_is_said() -> None:
    a, b = pair()
    assert len(b.open(a.seal(bytes(PAYLOAD_MAX))).payload) == PAYLOAD_MAX
    with pytest.raises(InputError, match="payload: has 65475 octets"):
        a.seal(bytes(PAYLOAD_MAX + 1))
    with pytest.raises(InputError, match="epoch: is 0"):
        Sealer(a.identity, a.ring, 0)


def test_the_error_survives_a_trip_to_a_worker() -> None:
    error = SealError(Refusal.REPLAYED, 11, "begins counter 5 of node 3 again")
    again = pickle.loads(pickle.dumps(error))
    assert again.reason is Refusal.REPLAYED
    assert str(again) == str(error) == "sealed frame, replayed: octet 11 begins counter 5 of node 3 again"
