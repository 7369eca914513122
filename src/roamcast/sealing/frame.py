"""The octets of a sealed frame.

    | version 4 | stream 2 | clear 1 | 0 1 | channel 8 | key id 16 |
    | sender 32                                                    |
    | epoch 32                                                     |
    | counter 40 …                                                 |
    | …     | payload …                                            |
    | tag 128                                                      |

The header is authenticated as associated data. Each boot of each sender has a key of its own, derived from
sender and epoch; the nonce is the last twelve octets of the header, which contain the counter. A node numbers
all its frames with one counter, from a random one on, and no epoch is used for a second boot
(`reserve_epoch`), so no nonce is used twice. The counters that a receiver sees on one stream have gaps. Each
stream has a window of its own, so frames over TCP and over UDP may overtake each other. With `clear` set the
payload is not encrypted, only authenticated.
"""

import struct
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from roamcast.errors import WireError
from roamcast.units import NodeId
from roamcast.wire.codec import FRAME_BYTES_MAX

if TYPE_CHECKING:  # it imports this module
    from roamcast.sealing.opener import PeerProof

VERSION = 1
HEADER = struct.Struct("!BBHIIBI")
SENDER = slice(4, 8)
POSITION = slice(4, 17)  # of the header: sender, epoch, counter
NONCE = slice(5, 17)
TAG_BYTES = 16
OVERHEAD = HEADER.size + TAG_BYTES  # 33 octets
PAYLOAD_MAX = FRAME_BYTES_MAX - OVERHEAD

STREAMS = 4
CLEAR = 0b10  # in the first octet
RESERVED = 0b01
HANDSHAKE = 255  # the channel of announcements; a runtime's own channels are below it

NODE_MAX = 2**32 - 1
COUNTER_MAX = 2**40 - 1
FIRST_BITS = 39  # of the first counter; at 20,000 frames per second the rest lasts 318 days without a restart
EPOCH_MAX = 2**32 - 1


class Refusal(Enum):
    """Why a frame was not opened. A runtime counts by these."""

    TOO_SHORT = "too short"
    TOO_LONG = "too long"
    VERSION = "unknown version"
    UNKNOWN_KEY = "unknown key"  # of another group, or of a key that has been retired
    FORGED = "forged"  # or damaged: the tag does not fit
    OWN = "own frame"  # our broadcast came back to us
    REPLAYED = "replayed"
    DISTANT = "distant"  # far from what its sender sent last: forged by a member, or old, or much was missed
    STALE_EPOCH = "stale epoch"  # of an earlier boot of its sender
    UNPROVEN = "unproven"  # perhaps a recording: the sender has not answered our challenge yet
    BAD_ANNOUNCEMENT = "bad announcement"
    BAD_SIGNATURE = "bad signature"
    IDENTITY = "identity"  # a node number used with another key than before
    REVOKED = "revoked"  # of a device that a member has declared lost
    CLASH = "clash"  # another device announces our own node number


class SealError(WireError):
    """A frame that this node does not open. It is dropped and counted; it never stops a node."""

    def __init__(self, reason: Refusal | str, octet: int, problem: str) -> None:
        # As text in `args`, so that the error can be pickled to a worker and back.
        self.reason = Refusal(reason)
        super().__init__(self.reason.value, octet, problem)

    def __str__(self) -> str:
        return "sealed frame, {}: octet {} {}".format(*self.args)


class Opened(NamedTuple):
    """The content of a frame that is authentic, recent and received for the first time."""

    sender: NodeId
    channel: int
    payload: bytes  # of an announcement: the profile, where the signature fits
    proof: "PeerProof | None" = None  # of its sender, if this frame proves it


def claimed_sender(data: bytes) -> NodeId | None:
    """The sender that a frame claims, true or not; None if it is too short."""
    return None if len(data) < HEADER.size else int.from_bytes(data[SENDER], "big")
