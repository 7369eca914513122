"""What the five white-box cases of section 6.1.3 cover, whether a harness or real nodes play them.

The control-flow diagrams (fig. 6.3 to 6.8) are not in the text, so the meaning of an edge is taken from
the cases that name it; `edges` below is that reading: A losing a neighbour (1 upstream, 2 downstream,
3 replies, 4 none: lead, 5 link here, 6 link elsewhere), B leading (1 hello, 2 gives up leading, 3 by
yielding, 4 end of a join), C request (1 passed on, 2 answered), D reply (1 rewritten, 2 and 4 passed on),
E activation (1 received, 2 first sent, 3 passed on, 4 ends here), F next link of an activation (1 stands,
2 opened). D.3 cannot be told from D.2 and D.4. In case 2 the text lets node 3 answer, the listed edges node 2
(C.2@2), and in case 5 the text (node 1 joins by node 4) and the listed edges (the activation ends at node 5)
disagree; the text is followed. In case 3 node 6, below 1, is not in the figure: a node with nobody in range
leads at once and asks no one.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from tests.strategy.tree.network import Pair, Sent

from roamcast.strategy.tree.overlay.messages import (
    Activation,
    GroupHello,
    OverlayMessage,
    ReplyStage,
    RouteReply,
    RouteRequest,
)
from roamcast.trace import OverlayChanged
from roamcast.units import NodeId

GL = 2  # the leader in all figures


def names(text: str) -> frozenset[str]:
    return frozenset(text.replace(",", " ").split())


EDGES = {
    1: names("A.2@3, A.1@1, A.3@1, A.5@1, B.1@2, C.2@4, E.2@1"),
    2: names(
        "B.1@2, B.2@3, B.3@3, C.1@1, C.1@4, C.2@3, D.2@1, D.4@1, D.1@4, E.1@4, E.4@4, E.1@1, E.3@1, F.2@1"
    ),
    3: names("A.1@1, A.4@1, B.1@2, B.1@1, B.4@2"),
    4: names(
        "A.2@2, A.1@3, A.3@3, A.6@3, B.1@2, C.1@1, C.1@5, C.1@4, C.2@2, D.2@1, D.4@1, D.2@5, D.4@5, D.1@4,"
        "E.1@4, E.4@4, E.1@5, E.3@5, E.1@1, E.3@1, E.2@3, F.1@1, F.2@5"
    ),
    5: names("B.1@2, B.2@1, B.4@1, C.1@5, C.1@4, C.2@2, D.1@5, D.1@4, E.2@1, E.1@4, E.4@4"),
}
JOINED = {3: [5], 5: [1]}  # nodes that come new
TREES: dict[int, tuple[set[Pair], list[NodeId]]] = {  # at the end of each case, and the leaders
    1: ({(2, 3), (2, 4), (1, 4)}, [GL]),
    2: ({(1, 2), (1, 4), (3, 4)}, [GL]),
    3: ({(2, 4), (2, 5), (1, 6)}, [1, GL]),
    4: ({(2, 4), (4, 5), (1, 5), (1, 3)}, [GL]),
    5: ({(2, 4), (2, 3), (3, 5), (1, 4)}, [GL]),
}


class Watched(Protocol):
    """Who has seen a network: all that its overlays sent, and what changed in them."""

    @property
    def records(self) -> Sequence[OverlayChanged]: ...

    def of(self, kind: type[OverlayMessage]) -> list[Sent]: ...


def edges(network: Watched, joined: Iterable[NodeId] = ()) -> set[str]:
    """What happened since the network stood, as the work names it; `joined`: nodes that came new."""
    found: set[str] = set()
    lost_below = {r.node for r in network.records if r.change == "link_down" and r.role == "upstream"}
    found |= {f"A.2@{node}" for node in lost_below}
    requests = [each.message for each in network.of(RouteRequest)]
    asked = {each.requester for each in requests if not each.reconnect}  # type: ignore[union-attr]
    for node in asked:
        found.add(f"A.1@{node}")
        found |= _repair_edges(network, node)
    gave_up = {r.node for r in network.records if r.change == "role_off"}
    found |= {f"B.1@{each.sender}" for each in network.of(GroupHello) if each.message.standing.hops == 0}  # type: ignore[union-attr]
    found |= {f"B.2@{node}" for node in gave_up}
    for sent in network.of(RouteReply):
        reply = sent.message
        assert isinstance(reply, RouteReply)
        came = [
            each
            for each in network.of(RouteReply)
            if each.to == sent.sender and each.at < sent.at and _request(each) == _request(sent)
        ]
        if not came:
            found.add(f"C.2@{sent.sender}")
            if reply.yields:
                found.add(f"B.3@{sent.sender}")
        if reply.stage is ReplyStage.JUMP:
            found.add(f"D.1@{sent.sender}")
        elif came:
            found |= {f"D.2@{sent.sender}", f"D.4@{sent.sender}"}
    for sent in network.of(RouteRequest):
        if sent.sender != sent.message.requester:  # type: ignore[union-attr]
            found.add(f"C.1@{sent.sender}")
    found |= _activation_edges(network)
    for record in network.records:
        if record.change == "link_up" and record.peer is not None:
            ends = {record.node, record.peer}
            found |= {f"B.4@{end}" for end in ends if ends & set(joined)}
    return found


def _request(sent: Sent) -> tuple[NodeId, int]:
    assert isinstance(sent.message, RouteReply)
    return sent.message.requester, sent.message.number


def _repair_edges(network: Watched, node: NodeId) -> set[str]:
    replies = [each for each in network.of(RouteReply) if each.to == node]
    if not replies:
        became = any(r.node == node and r.change == "role_on" for r in network.records)
        return {f"A.4@{node}"} if became else set()
    first = next(each for each in network.of(Activation) if each.sender == node)
    assert isinstance(first.message, Activation)
    return {f"A.3@{node}", f"A.5@{node}" if first.message.stage is ReplyStage.JUMP else f"A.6@{node}"}


def _activation_edges(network: Watched) -> set[str]:
    found: set[str] = set()
    for sent in network.of(Activation):
        message = sent.message
        assert isinstance(message, Activation)
        if sent.sender == message.requester:
            found.add(f"E.2@{sent.sender}")
        else:
            found |= {f"E.1@{sent.sender}", f"E.3@{sent.sender}"}
            found.add(f"F.2@{sent.sender}" if message.stage is ReplyStage.JUMP else f"F.1@{sent.sender}")
        if message.stage is ReplyStage.JUMP:
            found |= {f"E.1@{sent.to}", f"E.4@{sent.to}"}
    return found
