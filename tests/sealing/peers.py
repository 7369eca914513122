"""Nodes that seal and open, driven by hand."""

from collections.abc import MutableMapping

from roamcast.sealing import (
    FrameOpener,
    GroupKey,
    Identity,
    KeyRing,
    Opened,
    PeerProof,
    Refusal,
    Sealer,
    SealError,
)
from roamcast.sealing.sealer import reserve_epoch
from roamcast.units import NodeId

GROUP = GroupKey(bytes(range(32)))


class KnownSender:
    def __init__(self, proof: PeerProof | None) -> None:
        self.proof = proof


class Peer:
    """One device: `restart` is a crash and a boot over the same storage. It is its opener's owner too."""

    def __init__(self, number: int | None, ring: KeyRing | None = None, *, encrypt: bool = True) -> None:
        self.identity = Identity.generate(number)
        self.node = self.identity.node
        self.ring = ring or KeyRing(GROUP)
        self.encrypt = encrypt
        self.stable: MutableMapping[str, bytes] = {}
        self.profile = b""
        self.restart()

    def restart(self) -> None:
        self.epoch = reserve_epoch(self.stable, draw=lambda below: 0)
        self.sealer = Sealer(self.identity, self.ring, self.epoch, self.encrypt)
        self.senders: dict[NodeId, KnownSender] = {}
        self.opener = FrameOpener(self.sealer, self.stable, self.senders, self)

    def own_profile(self) -> bytes:
        return self.profile

    def on_evicted(self, table: str) -> None:
        pass

    def push_out(self, node: NodeId) -> None:
        """As a runtime does whose table of senders is full."""
        del self.senders[node]
        self.opener.on_forgotten()

    def replace_keys(self, ring: KeyRing) -> None:
        self.ring = ring
        self.opener.replace_keys(ring)

    def seal(self, payload: bytes, channel: int = 1, stream: int = 0) -> bytes:
        return self.sealer.seal(channel, payload, stream)

    def open(self, data: bytes) -> Opened:
        opened = self.opener.open(data)
        if opened.proof is not None:
            self.senders[opened.sender] = KnownSender(opened.proof)
        return opened

    def refusal(self, data: bytes) -> Refusal | None:
        """Why a frame is refused; None if it is accepted."""
        try:
            self.open(data)
        except SealError as error:
            return error.reason
        return None


def settle(*peers: Peer) -> int:
    """Everyone hears everyone's announcements until nobody owes one; returns how many it took."""
    sent = 0
    while any(peer.opener.announcement_due for peer in peers):
        for peer in peers:
            if peer.opener.announcement_due:
                sent += 1
                assert sent < 100, "the handshake does not end"
                data = peer.opener.announcement()
                for other in peers:
                    if other is not peer:
                        other.refusal(data)
    return sent


def meet(*peers: Peer) -> int:
    """Everyone hears one frame of everyone, and what follows from it; returns the announcements it took."""
    for peer in peers:
        data = peer.seal(b"beacon")
        for other in peers:
            if other is not peer:
                other.refusal(data)
    return settle(*peers)
