"""A search for a path into another tree, and the choice among the replies (sections 4.2, 4.4, 5.4)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.strategy.tree.overlay.label import Label
from roamcast.strategy.tree.overlay.routes import RequestKey
from roamcast.units import NodeId


class Reply(NamedTuple):
    request: RequestKey
    responder: NodeId
    label: Label
    hops: int  # from the responder's leader to the requester
    yields: bool


@dataclass(slots=True)
class TreeSearch:
    """The replies so far; a decision about them is due."""

    replies: list[Reply] = field(default_factory=list)


def best_reply(replies: Iterable[Reply], tolerance: int) -> Reply | None:
    """The nearest of those whose group sequence number is within `tolerance` of the freshest.

    Ties go to the fresher, then to the lower identifier, so that every node chooses alike.
    """
    candidates = list(replies)
    if not candidates:
        return None
    freshest = max(reply.label.sequence for reply in candidates)
    fresh = [reply for reply in candidates if reply.label.sequence >= freshest - tolerance]
    return min(fresh, key=lambda reply: (reply.hops, -reply.label.sequence, reply.responder))
