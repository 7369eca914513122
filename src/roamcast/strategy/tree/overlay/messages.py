"""The messages on the air: four of the protocol, three that keep both ends of a link consistent, and data.

RREQ, RREP, MACT and GRPH carry what appendix A gives them, less what one group without outsiders does
not need (section 4.1: destination group, join and group-leader flags). What was added: a label in place
of sequence number and hop count, and the number of the link that a message is about. A link's number is
drawn at random by the end that offers it, so a message about an earlier link between the same two nodes,
or from a node before its crash, names a link that no longer exists and is dropped.
"""

from enum import IntEnum
from typing import Annotated, TypeAlias

import msgspec

from roamcast.event import Count
from roamcast.strategy.tree.overlay.label import Label
from roamcast.strategy.tree.overlay.original_messages import (
    MaodvActivation,
    MaodvHello,
    MaodvReply,
    MaodvRequest,
)
from roamcast.units import SECOND
from roamcast.wire import Codec

# Bounds chosen by us: what no honest node reaches is refused when it is decoded.
LINK_BITS = 62  # drawn at random: two equal numbers are as good as impossible
LINKS_MAX = 1_000  # named in one group hello
URL_LENGTH_MAX = 512
HOPS_MAX = 255

Hops: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=HOPS_MAX)]
LinkNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << LINK_BITS)]
Sequence: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 40), le=1 << 40)]
Interval: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=3600 * SECOND)]
Url: TypeAlias = Annotated[str, msgspec.Meta(max_length=URL_LENGTH_MAX)]


class ReplyStage(IntEnum):
    """Which part of its path a reply or an activation is on."""

    FAR = 0  # in the tree of the node that answered
    JUMP = 1  # on the one hop that is in no tree yet
    NEAR = 2  # in the tree of the node that asked


class Standing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A label on the air, and the sender's hops to its leader."""

    sequence: Sequence
    leader: Count
    rank: Rank
    hops: Hops

    @property
    def label(self) -> Label:
        # As `Label(…)`, three times as fast.
        return tuple.__new__(Label, (self.sequence, self.leader, self.rank))


class RouteRequest(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """RREQ: `requester` looks for a path into another tree."""

    requester: Count
    number: Count  # BCastId
    standing: Standing  # of the requester
    time_to_live: Hops
    hops: Hops  # travelled so far
    limited: bool  # OverlayLimited: it has left the tree once and may not again (Rule 1)
    reconnect: bool  # from a leader that looks for other partitions (section 4.4)


class RouteReply(msgspec.Struct, frozen=True, array_like=True, tag=2, forbid_unknown_fields=True):
    """RREP: a path was found. `yields`: the answering leader steps down, its tree goes below the other."""

    requester: Count
    number: Count
    responder: Count  # rewritten by the node at the jump (section 4.2)
    standing: Standing  # of the last sender in the responder's tree
    hops: Hops  # from the responder's leader to here
    stage: ReplyStage
    yields: bool
    link: LinkNumber  # FAR: the tree link it travels on; JUMP: the link offered; else 0
    turn: Count  # FAR and yields: see `TreeLink.turn`
    url: Url = ""  # JUMP: where the offering end can be reached (reactive manager)


class Activation(msgspec.Struct, frozen=True, array_like=True, tag=3, forbid_unknown_fields=True):
    """MACT: the path by `responder` was chosen; stops at the jump."""

    requester: Count
    number: Count
    responder: Count
    standing: Standing  # of the last sender
    stage: ReplyStage
    yields: bool
    link: LinkNumber
    turn: Count
    url: Url = ""


class GroupHello(msgspec.Struct, frozen=True, array_like=True, tag=4, forbid_unknown_fields=True):
    """GRPH: the leader is alive. One broadcast for all downstream neighbours (section 5.2.3).

    `links` names each of them with its link, so that a neighbour which is missing, or named with a link
    it does not have, learns that the two ends disagree.
    """

    standing: Standing
    interval: Interval  # until the leader's next
    update: bool
    links: Annotated[tuple[tuple[Count, LinkNumber], ...], msgspec.Meta(max_length=LINKS_MAX)]


class Confirm(msgspec.Struct, frozen=True, array_like=True, tag=5, forbid_unknown_fields=True):
    """The link exists at this end, and its turn is known."""

    link: LinkNumber
    turn: Count


class Close(msgspec.Struct, frozen=True, array_like=True, tag=6, forbid_unknown_fields=True):
    """There is no such link at this end (any more). MACT with the prune flag, for one link."""

    link: LinkNumber


class Probe(msgspec.Struct, frozen=True, array_like=True, tag=7, forbid_unknown_fields=True):
    """Is the upstream still there? (section 4.3). Answered by `Confirm` or `Close`."""

    link: LinkNumber


class TreeData(msgspec.Struct, frozen=True, array_like=True, tag=8, forbid_unknown_fields=True):
    """What the layer above sends over a tree link."""

    link: LinkNumber
    payload: bytes


class Spread(msgspec.Struct, frozen=True, array_like=True, tag=9, forbid_unknown_fields=True):
    """The same to several tree neighbours in one broadcast, as MAODV forwards multicast data. Nodes that
    are not named ignore it."""

    links: Annotated[tuple[tuple[Count, LinkNumber], ...], msgspec.Meta(max_length=LINKS_MAX)]
    payload: bytes


class Sighting(msgspec.Struct, frozen=True, array_like=True, tag=10, forbid_unknown_fields=True):
    """Another tree is in range of someone below; on its way to the leader (R14)."""

    link: LinkNumber


OriginalMessage: TypeAlias = MaodvRequest | MaodvReply | MaodvActivation | MaodvHello

Message: TypeAlias = (
    RouteRequest
    | RouteReply
    | Activation
    | GroupHello
    | Confirm
    | Close
    | Probe
    | TreeData
    | Spread
    | Sighting
    | OriginalMessage
)

CODEC: Codec[Message] = Codec("tree", 1, Message)

NAMES: dict[type[msgspec.Struct], str] = {
    RouteRequest: "rreq",
    RouteReply: "rrep",
    Activation: "mact",
    GroupHello: "grph",
    Confirm: "confirm",
    Close: "close",
    Probe: "probe",
    TreeData: "data",
    Spread: "data",
    Sighting: "sighting",
    MaodvRequest: "rreq",
    MaodvReply: "rrep",
    MaodvActivation: "mact",
    MaodvHello: "grph",
}
"""As the trace names them."""
