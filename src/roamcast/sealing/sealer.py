"""The sender: every frame is numbered, authenticated and, unless configured otherwise, encrypted.

`reserve_epoch` gives one number per boot. It is durable before it is used, so that no boot can repeat the
nonces of another. A node without storage, or whose storage was lost, takes its epoch from the wall clock and
chance; boards without a battery begin many boots with the same saved time. If the clock is not set, or the
disk takes nothing, chance alone decides. The first counter of a boot is always drawn: should two boots have
the same epoch all the same (a copied storage too), their nonces meet only if their runs of counters do.
Receivers need no order of epochs, only that no two sessions are alike (`opener.py`).
"""

import secrets
from collections.abc import Callable, MutableMapping

from roamcast.errors import InputError, RoamcastError
from roamcast.sealing.frame import (
    CLEAR,
    COUNTER_MAX,
    EPOCH_MAX,
    FIRST_BITS,
    HEADER,
    NODE_MAX,
    NONCE,
    PAYLOAD_MAX,
    POSITION,
    STREAMS,
    VERSION,
)
from roamcast.sealing.identity import Identity, KeyRing

STABLE_KEY = "sealing epoch"
CLOCK_BEGINS = 1_767_225_600  # Unix time of 2026-01-01, UTC; an earlier time means that the clock is not set
CLOCK_STEP = 16  # seconds
CHANCE = 128  # epochs in each step: 32 bits then last until 2043
RANDOM_BELOW = 2**31  # a random first epoch leaves half of the numbers for later boots


def reserve_epoch(
    stable: MutableMapping[str, bytes],
    unix_time: float = 0.0,
    draw: Callable[[int], int] = secrets.randbelow,
) -> int:
    """The epoch of this boot; durable on return, unless the disk takes nothing. `unix_time`: the wall clock,
    in seconds."""
    stored = stable.get(STABLE_KEY)
    if stored is not None:
        epoch = int.from_bytes(stored, "big") + 1
    elif unix_time >= CLOCK_BEGINS:
        epoch = 1 + int((unix_time - CLOCK_BEGINS) // CLOCK_STEP) * CHANCE + draw(CHANCE)
    else:
        epoch = 1 + draw(RANDOM_BELOW)
    if epoch > EPOCH_MAX:
        raise InputError("storage", "has used up all epochs of this identity; generate a new identity")
    try:
        stable[STABLE_KEY] = epoch.to_bytes(4, "big")
    except RoamcastError:  # a full or broken disk; what is stored stays, and its successor may be used twice
        return 1 + draw(EPOCH_MAX)
    return epoch


class CountersExhaustedError(RoamcastError):
    """This boot has used all its counters; a restart takes the next epoch."""


class Sealer:
    """One per running node. `epoch` comes from `reserve_epoch` and is used by no other `Sealer`. `first`:
    below the first counter, drawn from `FIRST_BITS` if not given."""

    def __init__(
        self, identity: Identity, ring: KeyRing, epoch: int, encrypt: bool = True, first: int | None = None
    ) -> None:
        if not 0 < epoch <= EPOCH_MAX:
            raise InputError("epoch", f"is {epoch}, must be from 1 to {EPOCH_MAX}")
        if not 0 <= identity.node <= NODE_MAX:
            raise InputError("node", f"is {identity.node}, must be from 0 to {NODE_MAX}")
        self.identity = identity
        self.epoch = epoch
        self._encrypt = encrypt
        self._first = [VERSION << 4 | stream << 2 | (0 if encrypt else CLEAR) for stream in range(STREAMS)]
        self.first = secrets.randbits(FIRST_BITS) if first is None else first
        self.counter = self.first  # of the last frame
        self.replace_keys(ring)

    def replace_keys(self, ring: KeyRing) -> None:
        """From now on seal with another key. The counter goes on: it is the sender's, not the key's."""
        self.ring = ring
        self._key_id = ring.sending.id
        self._cipher = ring.sending.cipher(self.identity.node, self.epoch)

    def seal(self, channel: int, payload: bytes, stream: int = 0) -> bytes:
        """The frame to send now. Seal frames in the order in which they leave on their stream."""
        if len(payload) > PAYLOAD_MAX:
            raise InputError(
                "payload", f"has {len(payload)} octets, at most {PAYLOAD_MAX} fit a sealed frame"
            )
        header = self._next_header(channel, stream)
        return self._sealed(header, payload)

    def seal_announcement(self, channel: int, encode: Callable[[bytes], bytes]) -> bytes:
        """A frame whose payload is made with its own sender, epoch and counter, which it signs."""
        header = self._next_header(channel, 0)
        return self._sealed(header, encode(header[POSITION]))

    def has_sent(self, epoch: int, counter: int) -> bool:
        return epoch == self.epoch and self.first < counter <= self.counter

    def _next_header(self, channel: int, stream: int) -> bytes:
        if self.counter >= COUNTER_MAX:
            raise CountersExhaustedError(
                f"all {COUNTER_MAX} counters of epoch {self.epoch} are used; restart the node"
            )
        self.counter = counter = self.counter + 1
        return HEADER.pack(
            self._first[stream],
            channel,
            self._key_id,
            self.identity.node,
            self.epoch,
            counter >> 32,
            counter & 0xFFFFFFFF,
        )

    def _sealed(self, header: bytes, payload: bytes) -> bytes:
        if self._encrypt:
            return header + self._cipher.encrypt(header[NONCE], payload, header)
        shown = header + payload
        return shown + self._cipher.encrypt(header[NONCE], b"", shown)
