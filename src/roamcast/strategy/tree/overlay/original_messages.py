"""The messages of the original protocol, as appendix A.1 and the draft have them (messages 1 to 4).

There is one group, so no message names it. A group hello names its receivers, as in the evolved protocol:
one broadcast serves all tree neighbours. `MaodvReply.grant` is the permission of a member's own leader to
reconnect (3.2.3), which the text does not distinguish from the other leader's reply by a field.
"""

from typing import Annotated

import msgspec

from roamcast.event import Count

# Bounds chosen by us: what no honest node reaches is refused when it is decoded.
RECEIVERS_MAX = 1_000
HOPS_MAX = 255  # also stands for infinity
Hops = Annotated[int, msgspec.Meta(ge=0, le=HOPS_MAX)]
GroupSequence = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]


class MaodvRequest(msgspec.Struct, frozen=True, array_like=True, tag=20, forbid_unknown_fields=True):
    """RREQ. `join`: to become a member. `repair`: to reconnect two partitions, along a tree to its leader."""

    requester: Count
    number: Count  # BCastId
    sequence: GroupSequence  # the freshest that the requester knows
    leader: Count  # of the requester's tree; A.1 needs it for `repair` only
    hops_to_leader: Hops  # of the requester; infinite for one that joins
    hops: Hops  # travelled so far
    time_to_live: Hops
    join: bool
    repair: bool
    target: Count = 0  # `repair`: the leader that is asked


class MaodvReply(msgspec.Struct, frozen=True, array_like=True, tag=21, forbid_unknown_fields=True):
    """RREP."""

    requester: Count
    number: Count
    responder: Count
    sequence: GroupSequence
    leader: Count
    hops_to_leader: Hops  # from here, by the responder
    join: bool
    repair: bool
    grant: bool = False


class MaodvActivation(msgspec.Struct, frozen=True, array_like=True, tag=22, forbid_unknown_fields=True):
    """MACT. `prune`: the sender leaves the tree. `leader`: the receiver's side gets a leader of its own."""

    requester: Count
    number: Count
    responder: Count
    join: bool
    prune: bool = False
    leader: bool = False


class MaodvHello(msgspec.Struct, frozen=True, array_like=True, tag=23, forbid_unknown_fields=True):
    """GRPH. `update`: the leader has changed."""

    leader: Count
    sequence: GroupSequence
    hops_to_leader: Hops
    update: bool
    receivers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=RECEIVERS_MAX)]
