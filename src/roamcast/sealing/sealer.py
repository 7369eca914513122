"""The sender: every frame is numbered, authenticated and, unless configured otherwise, encrypted."""

from collections.abc import Callable

from roamcast.errors import InputError, RoamcastError
from roamcast.sealing.frame import (
    CLEAR,
    COUNTER_MAX,
    EPOCH_MAX,
    HEADER,
    NODE_MAX,
    NONCE,
    PAYLOAD_MAX,
    POSITION,
    STREAMS,
    VERSION,
)
from roamcast.sealing.identity import Identity
from roamcast.sealing.keyring import KeyRing


class CountersExhaustedError(RoamcastError):
    """This boot has used all its counters; a restart takes the next epoch."""


class Sealer:
    """One per running node. `epoch` comes from `reserve_epoch` and is used by no other `Sealer`, ever."""

    def __init__(self, identity: Identity, ring: KeyRing, epoch: int, encrypt: bool = True) -> None:
        if not 0 < epoch <= EPOCH_MAX:
            raise InputError("epoch", f"is {epoch}, must be from 1 to {EPOCH_MAX}")
        if not 0 <= identity.node <= NODE_MAX:
            raise InputError("node", f"is {identity.node}, must be from 0 to {NODE_MAX}")
        self.identity = identity
        self.epoch = epoch
        self._encrypt = encrypt
        self._first = [VERSION << 4 | stream << 2 | (0 if encrypt else CLEAR) for stream in range(STREAMS)]
        self.counter = 0  # of the last frame
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
