"""The receiver: a frame is accepted if it is authentic, recent and new, else refused.

A replay window alone knows only what it has seen. After a restart, or when a sender is met for the first
time, an outsider could replay hours of recorded frames. So a sender must first answer a challenge: each node
has a random nonce, and a sender counts as *proven* once it has sent an announcement that echoes the current
nonce, signed by its identity. Its window begins at that frame's counter. Nothing about replays has to be
durable, no clock is needed, and the runtime may forget a sender, which then proves itself again. A restart
costs one exchange of two frames with each neighbour, begun by the first frame heard from it; an absence
shorter than `IDLE_TURNS` turns costs nothing.

Data frames are not signed, so another member can seal them in the sender's name. The same challenge repairs
the damage: a frame far from what the sender sent last is refused, and the sender is asked. Its signed answer
says where it is, if it echoes a nonce that is younger than all that was accepted: so no frame is accepted
twice, and a window that was moved by a forgery begins anew.

Only frames that open under a group key create state; all of it is bounded. A sender's proof is kept by the
runtime, with all else that it knows of that node (`Sender`).
"""

import secrets
import struct
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from roamcast.errors import RoamcastError
from roamcast.kit.tables import BoundedDict
from roamcast.sealing.frame import (
    CLEAR,
    HANDSHAKE,
    HEADER,
    NONCE,
    OVERHEAD,
    POSITION,
    RESERVED,
    STREAMS,
    TAG_BYTES,
    VERSION,
    Opened,
    Refusal,
    SealError,
)
from roamcast.sealing.identity import (
    DERIVED_FROM,
    KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    KeyRing,
    is_signed,
    may_hold,
)
from roamcast.sealing.sealer import Sealer
from roamcast.units import NodeId
from roamcast.wire.codec import FRAME_BYTES_MAX

REACH = 4_096  # behind the highest
AHEAD = 65_536  # of the highest: three seconds of frames to others at 20,000 a second; chosen by us
_MASK = (1 << REACH) - 1


class ReplayWindow:
    """Accepts each counter above `floor` once, in any order within `REACH`: a sliding window (RFC 4303,
    section 3.4.3). Below `highest - REACH` nothing is accepted any more.

    `REACH` is wide because one counter numbers all frames of a sender, and a receiver sees only some of them:
    frames for other receivers count too. The value is chosen by us.
    """

    __slots__ = ("_seen", "challenge", "highest")

    def __init__(self, floor: int, challenge: int = 0) -> None:
        self.challenge = challenge  # the number of our nonce when it last accepted a frame
        self.begin(floor)

    def begin(self, floor: int) -> None:
        self.highest = floor
        self._seen = _MASK  # bit n: `highest - n` was seen; at first all: the floor and below are over

    def is_new(self, counter: int) -> bool:
        behind = self.highest - counter
        return behind < 0 or (behind < REACH and not self._seen >> behind & 1)

    def mark(self, counter: int) -> None:
        """Note a counter that `is_new`."""
        behind = self.highest - counter
        if behind >= 0:
            self._seen |= 1 << behind
        else:
            ahead = -behind
            self._seen = ((self._seen << ahead) & _MASK | 1) if ahead < REACH else 1
            self.highest = counter


NONCE_BYTES = 8
LIST_MAX = 48  # echoes, and nodes asked: at most 900 octets in a frame; the others come with the next one
_PURPOSE = b"roamcast announcement 1"
_COUNT = struct.Struct("!B")
_ECHO = struct.Struct("!I8s")
_NODE = struct.Struct("!I")
_FIXED = KEY_BYTES + NONCE_BYTES
PROFILE_BYTES_MAX = 255
BYTES_MIN = _FIXED + 3 * _COUNT.size + SIGNATURE_BYTES


class SignedAnnouncement(NamedTuple):
    """Signed: a node proves that it holds its number and key, and that the frame is recent.

        | public key 256 | nonce 64
        | count 8 | count × (node 32 | nonce 64)   echoes: answers to the challenges of others
        | count 8 | count × node 32                asked: whose answer the sender lacks
        | length 8 | length octets                 profile: what the runtime says of the sender; not read here
        | signature 512 |

    `nonce` is the sender's challenge to those it asks. A node that finds its own current nonce among the
    echoes knows that the frame was made after that nonce, so it is no recording. The signature covers the
    frame's sender, epoch and counter too.
    """

    public_key: bytes
    nonce: bytes
    echoes: tuple[tuple[NodeId, bytes], ...]
    asked: tuple[NodeId, ...]
    profile: bytes
    signature: bytes
    signed: bytes  # the octets that the signature covers

    def is_genuine(self) -> bool:
        return is_signed(self.public_key, self.signature, self.signed)


def encode(
    identity: Identity,
    position: bytes,
    nonce: bytes,
    echoes: Sequence[tuple[NodeId, bytes]],
    asked: Sequence[NodeId],
    profile: bytes = b"",
) -> bytes:
    """`position`: sender, epoch and counter as in the header of the frame that will carry it."""
    assert len(echoes) <= LIST_MAX and len(asked) <= LIST_MAX and len(profile) <= PROFILE_BYTES_MAX
    body = b"".join(
        [
            identity.public_key,
            nonce,
            _COUNT.pack(len(echoes)),
            *(_ECHO.pack(*echo) for echo in echoes),
            _COUNT.pack(len(asked)),
            *(_NODE.pack(node) for node in asked),
            _COUNT.pack(len(profile)),
            profile,
        ]
    )
    return body + identity.sign(_PURPOSE + position + body)


def decode(position: bytes, payload: bytes) -> SignedAnnouncement:
    body = payload[:-SIGNATURE_BYTES]
    if len(payload) < BYTES_MIN:
        raise _misfit(payload)
    echoes_at = _FIXED + 1
    asked_at = echoes_at + payload[_FIXED] * _ECHO.size + 1
    if len(body) < asked_at:
        raise _misfit(payload)
    profile_at = asked_at + body[asked_at - 1] * _NODE.size + 1
    if len(body) < profile_at or len(body) != profile_at + body[profile_at - 1]:
        raise _misfit(payload)
    return SignedAnnouncement(
        payload[:KEY_BYTES],
        payload[KEY_BYTES:_FIXED],
        tuple(_ECHO.iter_unpack(body[echoes_at : asked_at - 1])),
        tuple(node for (node,) in _NODE.iter_unpack(body[asked_at : profile_at - 1])),
        body[profile_at:],
        payload[-SIGNATURE_BYTES:],
        _PURPOSE + position + body,
    )


def _misfit(payload: bytes) -> SealError:
    return SealError(Refusal.BAD_ANNOUNCEMENT, 17, f"begins {len(payload)} octets that fit no announcement")


TURN_SECONDS = 60  # how often a runtime calls `turn`; chosen by us
IDLE_TURNS = 3  # a sender not heard for so long proves itself again; chosen by us
PINS_MAX = 4_096  # this and the following bounds: chosen by us
WAITING_MAX = 256  # senders whose nonce we still have to echo; likewise senders that we have asked
UNPROVEN_MAX = 256  # ciphers kept of senders that have not proven themselves yet
ASKS_MAX = (
    8  # per sender and turn; then only every 8th of its frames makes us ask again: a link may be one-way
)

_K = TypeVar("_K")
_V = TypeVar("_V")

_KEPT_PIN = "sealing pin "  # + node number: its public key, in durable storage


class PeerProof:
    """That a sender has proven itself in one of its boots, and what it has sent in that boot."""

    __slots__ = ("challenge", "ciphers", "epoch", "heard", "highest", "public_key", "windows")

    def __init__(self, epoch: int, public_key: bytes, floor: int, heard: int, challenge: int) -> None:
        self.epoch = epoch
        self.public_key = public_key
        self.windows = [ReplayWindow(floor, challenge) for _ in range(STREAMS)]
        self.highest = floor  # of all streams: one counter numbers them
        self.ciphers: dict[int, ChaCha20Poly1305] = {}
        self.heard = heard  # the turn of its last frame
        self.challenge = challenge  # the number of our nonce when it was proven

    def is_distant(self, window: ReplayWindow, counter: int) -> bool:
        return window.highest - counter >= REACH or counter - self.highest > AHEAD


class Sender(Protocol):
    """A node that the runtime has heard; `proof` is None until it has proven itself, and when it is idle."""

    proof: PeerProof | None


class OpenerOwner(Protocol):
    """The runtime's side of an opener."""

    def own_profile(self) -> bytes:
        """What our announcements say of us."""

    def on_evicted(self, table: str) -> None:
        """A full table has made room."""


class FrameOpener:
    """One per running node. A frame that proves its sender is `Opened` with the proof: the runtime keeps it
    in `senders`, and calls `on_forgotten` if it forgets a sender that has one.

    When `announcement_due` is set, the runtime broadcasts `announcement()` soon: after a random delay of some
    milliseconds, so that neighbours do not answer all at once, and not more often than ten times a second.
    """

    def __init__(
        self,
        sealer: Sealer,
        stored: MutableMapping[str, bytes],
        senders: Mapping[NodeId, Sender],
        owner: OpenerOwner,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._sealer = sealer
        self._own: NodeId = sealer.identity.node
        self._keys = sealer.ring.by_id
        self._stored = stored
        self._senders = senders
        self._owner = owner
        self._random_bytes = random_bytes
        self._unproven: BoundedDict[tuple[int, NodeId, int], ChaCha20Poly1305] = self._table(
            "unproven", UNPROVEN_MAX
        )
        self._pins: BoundedDict[NodeId, bytes] = BoundedDict(PINS_MAX, self._on_pin_evicted)
        self._pins.update(_pins_in(stored))
        self._nonces: tuple[bytes, bytes] = (random_bytes(NONCE_BYTES), random_bytes(NONCE_BYTES))
        self._challenge = 2  # the number of the first of them; that of the second is one less
        self._draws_next = False  # the next announcement has a new nonce
        self._turn = 0
        self._echoes: BoundedDict[NodeId, bytes] = self._table("echoes", WAITING_MAX)
        self._asked: BoundedDict[NodeId, None] = self._table("asked", WAITING_MAX)
        self._tries: BoundedDict[NodeId, int] = self._table("tries", WAITING_MAX)
        self.announcement_due = False
        self._revoked: set[NodeId] = set()  # bounded by the statements that stand (`air/statements.py`)

    # Inputs.

    def open(self, data: bytes) -> Opened:
        """The content of a frame, or `SealError`; no other error, whatever the octets."""
        if len(data) < OVERHEAD:
            raise SealError(Refusal.TOO_SHORT, len(data), f"is the end, {OVERHEAD} octets are the least")
        if len(data) > FRAME_BYTES_MAX:
            raise SealError(
                Refusal.TOO_LONG, FRAME_BYTES_MAX, f"should be the end, but there are {len(data)}"
            )
        first, channel, key_id, sender, epoch, high, low = HEADER.unpack_from(data)
        if first >> 4 != VERSION or first & RESERVED:
            raise SealError(Refusal.VERSION, 0, f"begins octet {first:#04x}, our version is {VERSION}")
        if sender in self._revoked:
            raise SealError(Refusal.REVOKED, 4, f"begins node {sender}, which is revoked")
        known = self._senders.get(sender)
        proof = None if known is None else known.proof
        if proof is None or proof.epoch != epoch:
            return self._open_unproven(data, proof)
        window = proof.windows[first >> 2 & 3]
        counter = high << 32 | low
        is_distant = proof.is_distant(window, counter)
        if not is_distant and not window.is_new(counter):  # before decryption: a replay is cheap to refuse
            raise SealError(Refusal.REPLAYED, 12, f"begins counter {counter} of node {sender} again")
        cipher = proof.ciphers.get(key_id)
        if cipher is None:
            cipher = self._derived(key_id, sender, epoch)
            payload = _decrypted(cipher, data)
            proof.ciphers[key_id] = cipher
        else:
            payload = _decrypted(cipher, data)
        if channel == HANDSHAKE:
            announcement = decode(data[POSITION], payload)
            if announcement.public_key != proof.public_key:
                raise SealError(Refusal.IDENTITY, 4, f"begins node {sender}, known by another key")
            self._find(proof, counter, announcement)
            is_distant = proof.is_distant(window, counter)
            self._answer(sender, announcement)
            # What it says of itself now; in its name any member can seal a frame, but not sign one.
            payload = announcement.profile if announcement.is_genuine() else b""
        if is_distant:
            self._ask(sender, window.challenge)
            raise SealError(Refusal.DISTANT, 12, f"begins counter {counter}, far from node {sender}'s last")
        if channel != HANDSHAKE or window.is_new(counter):  # not where a window has just begun anew
            window.mark(counter)
            if counter > proof.highest:
                proof.highest = counter
        window.challenge = self._challenge
        proof.heard = self._turn
        return Opened(sender, channel, payload)

    def turn(self) -> None:
        """Call every `TURN_SECONDS`: forget senders that have been silent for long, and change the nonce."""
        self._turn += 1
        for sender in self._senders.values():
            if sender.proof is not None and sender.proof.heard <= self._turn - IDLE_TURNS:
                sender.proof = None
        # The previous nonce stays valid for one turn: answers to it are in transit. A sender that is idle
        # for `IDLE_TURNS` cannot come back by a recording: both nonces are younger than its last frame.
        self._draw()
        self._tries.clear()
        self._echoes.clear()
        self._asked.clear()

    def replace_keys(self, ring: KeyRing) -> None:
        """From now on seal and open with another ring. Senders stay proven."""
        self._sealer.replace_keys(ring)
        self._keys = ring.by_id
        self._unproven.clear()
        for sender in self._senders.values():
            if sender.proof is not None:
                sender.proof.ciphers.clear()

    def forget(self, node: NodeId) -> bool:
        """Forget the holder of a number: an operator says that another device has it now. Whether there was
        one."""
        was_known = self.public_key(node) is not None
        if self._pins.pop(node, None) is not None:
            self._stored.pop(f"{_KEPT_PIN}{node}", None)
        self._disprove(node)
        return was_known

    def revoke(self, node: NodeId) -> None:
        """From now on nothing of this sender is accepted."""
        self._revoked.add(node)
        self._disprove(node)

    def pardon(self, node: NodeId) -> None:
        self._revoked.discard(node)

    def on_forgotten(self) -> None:
        """A proven sender was forgotten: change the nonces, or a recorded answer could bring it back."""
        self._draw()
        self._draw()

    # What to send.

    def announcement(self) -> bytes:
        """A sealed frame, to be broadcast: our challenge, and the answers to challenges we have received."""
        if self._draws_next:
            self._draw()
        self.announcement_due = len(self._echoes) > LIST_MAX or len(self._asked) > LIST_MAX
        echoes = [(node, self._echoes.pop(node)) for node in list(self._echoes)[:LIST_MAX]]
        asked = list(self._asked)[:LIST_MAX]
        for node in asked:
            del self._asked[node]
        identity, nonce, profile = self._sealer.identity, self._nonces[0], self._owner.own_profile()
        return self._sealer.seal_announcement(
            HANDSHAKE, lambda position: encode(identity, position, nonce, echoes, asked, profile)
        )

    # Questions.

    def proven(self) -> list[NodeId]:
        """The senders whose frames are accepted."""
        return sorted(node for node, sender in self._senders.items() if sender.proof is not None)

    def public_key(self, node: NodeId) -> bytes | None:
        """The key that holds a number, if this node knows it."""
        sender = self._senders.get(node)
        return self._pins.get(node) if sender is None or sender.proof is None else sender.proof.public_key

    # Private.

    def _disprove(self, node: NodeId) -> None:
        sender = self._senders.get(node)
        if sender is not None and sender.proof is not None:
            sender.proof = None
            self.on_forgotten()

    def _open_unproven(self, data: bytes, before: PeerProof | None) -> Opened:
        """A frame of a sender that has not proven itself, at all or since its latest boot."""
        _, channel, key_id, sender, epoch, high, low = HEADER.unpack_from(data)
        counter = high << 32 | low
        if sender == self._own and (channel != HANDSHAKE or self._sealer.has_sent(epoch, counter)):
            raise SealError(Refusal.OWN, 4, "begins our own number")
        key = (key_id, sender, epoch)
        cipher = self._unproven.get(key) or self._derived(key_id, sender, epoch)
        payload = _decrypted(cipher, data)
        self._unproven.renew(key, cipher)
        # Of an earlier boot no announcement can echo a nonce that was drawn after the present one was proven.
        older = 0 if before is None else before.challenge
        if channel == HANDSHAKE:
            announcement = decode(data[POSITION], payload)
            if sender == self._own:
                raise self._clash(epoch, announcement)
            proof: PeerProof | None = None
            if self._answered(announcement) > older:
                proof = self._proof(sender, epoch, counter, announcement)
            self._answer(sender, announcement)
            if proof is not None:
                return Opened(sender, channel, announcement.profile, proof)
            if sender not in self._echoes:  # it has not asked yet, but will; answer with our next frame
                self._echoes.renew(sender, announcement.nonce)
        self._ask(sender, older)
        if before is not None and epoch < before.epoch:
            raise SealError(
                Refusal.STALE_EPOCH, 8, f"begins epoch {epoch}; node {sender} is in {before.epoch}"
            )
        raise SealError(
            Refusal.UNPROVEN, 4, f"begins node {sender}, which has not answered our challenge yet"
        )

    def _proof(self, sender: NodeId, epoch: int, counter: int, announcement: SignedAnnouncement) -> PeerProof:
        # The signature is checked last, and only if the nonce is right: a recording costs us little work.
        if not may_hold(sender, announcement.public_key):
            raise SealError(Refusal.IDENTITY, 4, f"begins node {sender}, which does not follow from its key")
        if self._pins.get(sender, announcement.public_key) != announcement.public_key:
            raise SealError(Refusal.IDENTITY, 4, f"begins node {sender}, known by another key")
        if not announcement.is_genuine():
            raise SealError(Refusal.BAD_SIGNATURE, 17, f"begins an announcement not signed by node {sender}")
        with suppress(RoamcastError):  # a full disk: then the pin lasts until the next boot
            self._pin(sender, announcement.public_key)
        self._tries.pop(sender, None)
        self._asked.pop(sender, None)
        return PeerProof(epoch, announcement.public_key, counter, self._turn, self._challenge)

    def _find(self, proof: PeerProof, counter: int, announcement: SignedAnnouncement) -> None:
        """Where a proven sender is, if it answers a challenge: a window that was moved far beyond, by frames
        in the sender's name, begins anew there. What a window has accepted since the challenge was drawn may
        be younger than the answer, so such a window stays."""
        answered = self._answered(announcement)
        moved = [
            window
            for window in proof.windows
            if window.highest - counter >= REACH and window.challenge < answered
        ]
        is_ahead = answered > 0 and counter - proof.highest > AHEAD
        if (moved or is_ahead) and announcement.is_genuine():
            for window in moved:
                window.begin(counter)
            proof.highest = max(counter, *(window.highest for window in proof.windows))

    def _answered(self, announcement: SignedAnnouncement) -> int:
        """The number of the youngest of our nonces that it echoes; 0: none that is valid."""
        for place, nonce in enumerate(self._nonces):
            if (self._own, nonce) in announcement.echoes:
                return self._challenge - place
        return 0

    def _draw(self) -> None:
        self._nonces = (self._random_bytes(NONCE_BYTES), self._nonces[0])
        self._challenge += 1
        self._draws_next = False

    def _pin(self, node: NodeId, public_key: bytes) -> None:
        """Remember who holds a configured number; a derived number needs no record."""
        if node >= DERIVED_FROM:
            return
        is_new = node not in self._pins
        self._pins.renew(node, public_key)
        if is_new:
            self._stored[f"{_KEPT_PIN}{node}"] = public_key

    def _answer(self, sender: NodeId, announcement: SignedAnnouncement) -> None:
        """Echo the nonce of a sender that asks us to."""
        if self._own in announcement.asked:
            self._echoes.renew(sender, announcement.nonce)
            self.announcement_due = True

    def _ask(self, sender: NodeId, older: int) -> None:
        """Challenge a sender soon, unless it has left many challenges of this turn unanswered; by a nonce
        with a higher number than `older`."""
        self._draws_next |= older >= self._challenge
        self._asked.renew(sender, None)
        tries = self._tries.get(sender, 0) + 1
        self._tries.renew(sender, tries)
        if tries <= ASKS_MAX or tries % ASKS_MAX == 0:
            self.announcement_due = True

    def _clash(self, epoch: int, announcement: SignedAnnouncement) -> SealError:
        same = announcement.public_key == self._sealer.identity.public_key
        if same and epoch < self._sealer.epoch:
            return SealError(Refusal.OWN, 4, "begins our own number, of an earlier boot")
        if not announcement.is_genuine():
            return SealError(Refusal.BAD_SIGNATURE, 17, "begins a false announcement of our own number")
        copy = "a copy of our identity" if same else "another device with our number"
        return SealError(Refusal.CLASH, 4, f"begins node {self._own}: {copy} is in the network")

    def _derived(self, key_id: int, sender: NodeId, epoch: int) -> ChaCha20Poly1305:
        key = self._keys.get(key_id)
        if key is None:
            raise SealError(Refusal.UNKNOWN_KEY, 2, f"begins key id {key_id:04x}, which is not in our ring")
        return key.cipher(sender, epoch)

    # Full tables.

    def _table(self, name: str, most: int) -> BoundedDict[_K, _V]:
        return BoundedDict(most, lambda key, value: self._owner.on_evicted(name))

    def _on_pin_evicted(self, node: NodeId, public_key: bytes) -> None:
        self._owner.on_evicted("pins")
        with suppress(RoamcastError):  # a full disk: then it is removed at the next boot
            self._stored.pop(f"{_KEPT_PIN}{node}", None)


def _decrypted(cipher: ChaCha20Poly1305, data: bytes) -> bytes:
    header = data[: HEADER.size]
    try:
        if not data[0] & CLEAR:
            return cipher.decrypt(header[NONCE], data[HEADER.size :], header)
        cipher.decrypt(header[NONCE], data[-TAG_BYTES:], data[:-TAG_BYTES])
        return data[HEADER.size : -TAG_BYTES]
    except InvalidTag:
        raise SealError(Refusal.FORGED, len(data) - TAG_BYTES, "begins a tag that does not fit") from None


def _pins_in(stored: MutableMapping[str, bytes]) -> dict[NodeId, bytes]:
    names = (name for name in stored if name.startswith(_KEPT_PIN))
    return {int(name.removeprefix(_KEPT_PIN)): stored[name] for name in names}
