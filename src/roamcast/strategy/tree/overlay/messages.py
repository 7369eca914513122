"""The messages on the air: four of the protocol, three that keep both ends of a link consistent, and data.

RREQ, RREP, MACT and GRPH carry what appendix A gives them, less what one group does not need (section 4.1:
destination group, group-leader flag). What was added: a label in place
of sequence number and hop count, and the number of the link that a message is about. A link's number is
drawn at random by the end that offers it, so a message about an earlier link between the same two nodes,
or from a node before its crash, names a link that no longer exists and is dropped.

The original protocol's messages are those of appendix A.1 and of the draft (messages 1 to 4). A group hello
names its receivers there too: one broadcast serves all tree neighbours. `MaodvReply.grant` is the permission
of a member's own leader to reconnect (3.2.3), which the text does not distinguish from the other leader's
reply by a field.
"""

from enum import IntEnum
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from roamcast.event import Count
from roamcast.kit.protocol import WireMessage
from roamcast.units import SECOND, NodeId
from roamcast.wire import Codec

# Bounds chosen by us: what no honest node reaches is refused when it is decoded.
LINK_BITS = 62  # drawn at random: two equal numbers are as good as impossible
LINKS_MAX = 1_000  # named in one group hello
URL_LENGTH_MAX = 512
HOPS_MAX = 255  # also stands for infinity

Hops: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=HOPS_MAX)]
LinkNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << LINK_BITS)]
Sequence: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 40), le=1 << 40)]
Interval: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=3600 * SECOND)]
Url: TypeAlias = Annotated[str, msgspec.Meta(max_length=URL_LENGTH_MAX)]
NamedLinks: TypeAlias = Annotated[tuple[tuple[Count, LinkNumber], ...], msgspec.Meta(max_length=LINKS_MAX)]

RANKS_PER_HOP = 1 << 20
"""Ranks are hop counts with room between them: a path can be turned round, or a reply can improve the labels
of the nodes it passes, without waiting for the leader's next group hello. Chosen by us; any number far
above that of such steps between two group hellos works."""


class Label(NamedTuple):
    """How near a node is to a leader, and how fresh that is. The order of labels is what forbids cycles.

    The original protocol compares group sequence number and hop count, each by itself. Here both, with the
    leader's identifier between them, make one total order. Three rules keep it useful
    (`docs/protocols/tree.md` has the proof): a node's label only ever gets better; a node links below another
    only if that one's label is strictly better; and only a node without an upstream may improve its label
    beyond what an upstream states.

    `rank`: hops to the leader times `RANKS_PER_HOP`, lowered or raised by ones in between.
    """

    sequence: int
    leader: NodeId
    rank: int

    def better_than(self, other: "Label") -> bool:
        """A fresher sequence wins; identifiers break ties between leaders; then the lower rank."""
        if self.sequence != other.sequence:
            return self.sequence > other.sequence
        if self.leader != other.leader:
            return self.leader > other.leader
        return self.rank < other.rank

    def moved(self, ranks: int) -> "Label":
        return Label(self.sequence, self.leader, self.rank + ranks)

    def better_of(self, other: "Label") -> "Label":
        return self if self.better_than(other) else other


NOWHERE = Label(0, 0, 1 << 40)
"""Of a node on no tree, bound by nothing that it stated: every node of a tree is nearer (A.2, procedure 6:
its distance to the leader is infinite)."""


class ReplyStage(IntEnum):
    """Which part of its path a reply or an activation is on."""

    FAR = 0  # in the tree of the node that answered
    JUMP = 1  # on the one hop that is in no tree yet
    NEAR = 2  # in the tree of the node that asked


class Purpose(IntEnum):
    """Why a node asks: the join and repair flags of A.2, message 5."""

    REPAIR = 0  # its upstream is lost
    RECONNECT = 1  # it leads, and looks for other partitions (section 4.4)
    JOIN = 2  # it is on no tree and wants to be a member (only where some nodes are none)


class StatedLabel(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A label on the air, and the sender's hops to its leader."""

    sequence: Sequence
    leader: Count
    rank: Rank
    hops: Hops

    @property
    def label(self) -> Label:
        # As `Label(…)`, three times as fast.
        return tuple.__new__(Label, (self.sequence, self.leader, self.rank))


class AboutLink(WireMessage, frozen=True):
    """What is said about one tree link, or over it."""

    link: LinkNumber


class RequestKey(NamedTuple):
    """Which request a message belongs to: ReqNode and BCastId."""

    requester: NodeId
    number: int


class OfRequest(WireMessage, frozen=True):
    """A request, or what followed from it."""

    requester: Count
    number: Count  # BCastId

    @property
    def request(self) -> RequestKey:
        return RequestKey(self.requester, self.number)


class RouteRequest(OfRequest, frozen=True, tag=1):
    """RREQ: `requester` looks for a path into another tree."""

    name = "rreq"

    standing: StatedLabel  # of the requester
    time_to_live: Hops
    hops: Hops  # travelled so far
    limited: bool  # OverlayLimited: it has left the tree once and may not again (Rule 1)
    purpose: Purpose

    @property
    def reconnect(self) -> bool:
        return self.purpose is Purpose.RECONNECT


class RouteReply(OfRequest, frozen=True, tag=2):
    """RREP: a path was found. `yields`: the answering leader steps down, its tree goes below the other."""

    name = "rrep"

    responder: Count  # rewritten by the node at the jump (section 4.2)
    standing: StatedLabel  # of the last sender in the responder's tree
    hops: Hops  # from the responder's leader to here
    stage: ReplyStage
    yields: bool
    link: LinkNumber  # FAR: the tree link it travels on; JUMP: the link offered; else 0
    turn: Count  # FAR and yields: see `TreeLink.turn`
    url: Url = ""  # JUMP: where the offering end can be reached (reactive manager)


class Activation(OfRequest, frozen=True, tag=3):
    """MACT: the path by `responder` was chosen; stops at the jump."""

    name = "mact"

    responder: Count
    standing: StatedLabel  # of the last sender
    stage: ReplyStage
    yields: bool
    link: LinkNumber
    turn: Count
    url: Url = ""


class GroupHello(WireMessage, frozen=True, tag=4):
    """GRPH: the leader is alive. One broadcast for all downstream neighbours (section 5.2.3).

    `links` names each of them with its link, so that a neighbour which is missing, or named with a link
    it does not have, learns that the two ends disagree.
    """

    name = "grph"

    standing: StatedLabel
    interval: Interval  # until the leader's next
    update: bool
    links: NamedLinks


class Confirm(AboutLink, frozen=True, tag=5):
    """The link exists at this end, and its turn is known."""

    name = "confirm"

    turn: Count


class Close(AboutLink, frozen=True, tag=6):
    """There is no such link at this end (any more). MACT with the prune flag, for one link."""

    name = "close"


class Probe(AboutLink, frozen=True, tag=7):
    """Is the upstream still there? (section 4.3). Answered by `Confirm` or `Close`."""

    name = "probe"


class TreeData(AboutLink, frozen=True, tag=8):
    """What the layer above sends over a tree link."""

    name = "data"

    payload: bytes


class SpreadData(WireMessage, frozen=True, tag=9):
    """The same to several tree neighbours in one broadcast, as MAODV forwards multicast data. Nodes that
    are not named ignore it."""

    name = "data"

    links: NamedLinks
    payload: bytes


class Sighting(AboutLink, frozen=True, tag=10):
    """Another tree is in range of someone below; on its way to the leader (R14)."""

    name = "sighting"


# The original protocol.


class MaodvRequest(OfRequest, frozen=True, tag=20):
    """RREQ. `join`: to become a member. `repair`: to reconnect two partitions, along a tree to its leader."""

    name = "rreq"

    sequence: Sequence  # the freshest that the requester knows
    leader: Count  # of the requester's tree; A.1 needs it for `repair` only
    hops_to_leader: Hops  # of the requester; infinite for one that joins
    hops: Hops  # travelled so far
    time_to_live: Hops
    join: bool
    repair: bool
    target: Count = 0  # `repair`: the leader that is asked


class MaodvReply(OfRequest, frozen=True, tag=21):
    """RREP."""

    name = "rrep"

    responder: Count
    sequence: Sequence
    leader: Count
    hops_to_leader: Hops  # from here, by the responder
    join: bool
    repair: bool
    grant: bool = False


class MaodvActivation(OfRequest, frozen=True, tag=22):
    """MACT. `prune`: the sender leaves the tree. `leader`: the receiver's side gets a leader of its own."""

    name = "mact"

    responder: Count
    join: bool
    prune: bool = False
    leader: bool = False


class MaodvHello(WireMessage, frozen=True, tag=23):
    """GRPH. `update`: the leader has changed."""

    name = "grph"

    leader: Count
    sequence: Sequence
    hops_to_leader: Hops
    update: bool
    receivers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=LINKS_MAX)]


OverlayMessage: TypeAlias = (
    RouteRequest
    | RouteReply
    | Activation
    | GroupHello
    | Confirm
    | Close
    | Probe
    | TreeData
    | SpreadData
    | Sighting
    | MaodvRequest
    | MaodvReply
    | MaodvActivation
    | MaodvHello
)

CODEC: Codec[OverlayMessage] = Codec("tree", 2, OverlayMessage)
