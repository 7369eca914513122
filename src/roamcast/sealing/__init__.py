"""Identity and sealing: who a node is, and frames that only the group can make and read, accepted once.

To read in this order:

- `frame.py`: the octets of a sealed frame, and why one is refused.
- `identity.py`: the keys of a node (Ed25519) and of a group (rotation).
- `sealer.py` and `opener.py`: sender (one epoch per boot, never twice) and receiver of a frame (the signed
  answer to a challenge, and each frame at most once, in any order). A runtime uses these two.
- `content.py`: events that relays forward without reading them (Chapar's encrypted events).

How a runtime uses it, one pair per running node (`stable` is durable storage; time and sockets are its own):

    epoch = reserve_epoch(stable, time.time())          # durable before the first frame is sealed
    sealer = Sealer(identity, ring, epoch)
    opener = FrameOpener(sealer, stable, senders, owner)   # `senders`: whom the runtime has heard
    socket.send(opener.announcement())                  # once at boot, and when `announcement_due`
    socket.send(sealer.seal(channel, payload))          # stream=1 for frames that go over TCP
    try:
        sender, channel, payload, proof = opener.open(data)   # HANDSHAKE: nothing to hand on
    except SealError as error:                          # count by `error.reason`, drop the frame
        ...
    if proof is not None: senders[sender].proof = proof # its frames are accepted from now on
    if opener.announcement_due: ...                     # after every `open`: broadcast one soon
    opener.turn()                                       # every TURN_SECONDS

No sockets, no clock, no files here. `docs/use/security.md` says what this protects against whom. Left out:
signatures on every frame (the costs are stated there), keys per pair of nodes, forward secrecy.
"""

from roamcast.sealing.frame import HANDSHAKE, OVERHEAD, STREAMS, Opened, Refusal, SealError
from roamcast.sealing.identity import GroupKey, Identity, KeyRing
from roamcast.sealing.opener import TURN_SECONDS, FrameOpener, PeerProof
from roamcast.sealing.sealer import Sealer, reserve_epoch

__all__ = [
    "HANDSHAKE",
    "OVERHEAD",
    "STREAMS",
    "TURN_SECONDS",
    "FrameOpener",
    "GroupKey",
    "Identity",
    "KeyRing",
    "Opened",
    "PeerProof",
    "Refusal",
    "SealError",
    "Sealer",
    "reserve_epoch",
]
