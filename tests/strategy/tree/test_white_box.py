"""The five white-box cases of section 6.1.3, with the edges that the work says they cover.

The control-flow diagrams (fig. 6.3 to 6.8) are not in the text, so the meaning of an edge is taken from
the cases that name it; `edges` below is that reading: A losing a neighbour (1 upstream, 2 downstream,
3 replies, 4 none: lead, 5 link here, 6 link elsewhere), B leading (1 hello, 2 gives up leading, 3 by
yielding, 4 end of a join), C request (1 passed on, 2 answered), D reply (1 rewritten, 2 and 4 passed on),
E activation (1 received, 2 first sent, 3 passed on, 4 ends here), F next link of an activation (1 stands,
2 opened). D.3 cannot be told from D.2 and D.4. In case 5 the text (node 1 joins by node 4) and the listed
edges (the activation ends at node 5) disagree; the text is followed.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial

import pytest
from tests.strategy.tree.network import Network, Pair, Sent

from roamcast.strategy.tree.overlay.messages import (
    Activation,
    Confirm,
    GroupHello,
    Label,
    OfRequest,
    Purpose,
    ReplyStage,
    RouteReply,
    RouteRequest,
)
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import NodeId

GL = 2  # the leader in all figures


OPTIONS = TreeOptions(preset="driving", reply_wait=0.2, ttl_increment=10)


def led(
    nodes: Iterable[NodeId],
    links: Iterable[Pair],
    leaders: Iterable[NodeId] = (GL,),
    options: TreeOptions = OPTIONS,
) -> Network:
    """A network whose trees have the given leaders: an old sequence number makes others go below."""
    network = Network(nodes, options=options)
    for age, leader in enumerate(leaders):
        network.nodes[leader].table.label = Label(100 - 40 * age, leader, 0)
    for link in links:
        network.connect(link)
        network.run(6)
    network.sent.clear()
    network.records.clear()
    return network


def edges(network: Network, joined: Iterable[NodeId] = ()) -> set[str]:
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


def _repair_edges(network: Network, node: NodeId) -> set[str]:
    replies = [each for each in network.of(RouteReply) if each.to == node]
    if not replies:
        became = any(r.node == node and r.change == "role_on" for r in network.records)
        return {f"A.4@{node}"} if became else set()
    first = next(each for each in network.of(Activation) if each.sender == node)
    assert isinstance(first.message, Activation)
    return {f"A.3@{node}", f"A.5@{node}" if first.message.stage is ReplyStage.JUMP else f"A.6@{node}"}


def _activation_edges(network: Network) -> set[str]:
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


def names(text: str) -> set[str]:
    return set(text.replace(",", " ").split())


def test_case_1_a_lost_upstream_is_replaced_by_a_node_in_range() -> None:
    network = led([1, 2, 3, 4], [(2, 3), (2, 4), (1, 3)])
    assert network.tree() == {(2, 3), (2, 4), (1, 3)}
    network.connect((1, 4))
    network.cut((1, 3))
    network.run(4)
    assert network.tree() == {(2, 3), (2, 4), (1, 4)} and network.leaders() == [GL]
    assert edges(network) >= names("A.2@3, A.1@1, A.3@1, A.5@1, B.1@2, C.2@4, E.2@1")


def test_case_2_two_partitions_are_merged_by_nodes_between_their_leaders() -> None:
    network = led([1, 2, 3, 4], [(1, 2), (3, 4)], leaders=[2, 3])
    assert network.leaders() == [2, 3]
    network.connect((1, 4))
    network.run(6)
    assert network.tree() == {(1, 2), (1, 4), (3, 4)} and network.leaders() == [GL]
    wanted = names(
        "B.1@2, B.2@3, B.3@3, C.1@1, C.1@4, D.2@1, D.4@1, D.1@4, E.1@4, E.4@4, E.1@1, E.3@1, F.2@1"
    )
    # The text lets node 3 answer, the listed edges node 2 (C.2@2): the text is followed.
    assert edges(network) >= wanted | {"C.2@3"}


def test_case_3_a_node_disappears_and_another_appears_elsewhere() -> None:
    # Node 6, below 1, is not in the figure: a node with nobody in range leads at once and asks no one.
    network = led([1, 2, 3, 4, 6], [(2, 3), (2, 4), (1, 3), (1, 6)])
    network.crash(3)
    network.boot(5)
    network.connect((2, 5), (4, 5))
    network.run(8)
    assert network.tree() == {(2, 4), (2, 5), (1, 6)} and network.leaders() == [1, GL]
    assert edges(network, joined=[5]) >= names("A.1@1, A.4@1, B.1@2, B.1@1, B.4@2")
    requests = [each.message for each in network.of(RouteRequest) if each.sender == 1]
    repairs = [each for each in requests if not each.reconnect]  # type: ignore[union-attr]
    assert len(repairs) == 2  # REQUEST_RETRIES


def test_case_4_a_lost_upstream_is_replaced_by_way_of_descendants() -> None:
    network = led([1, 2, 3, 4, 5], [(2, 3), (2, 4), (1, 3), (1, 5)])
    network.connect((4, 5))
    network.run(6)
    assert network.tree() == {(2, 3), (2, 4), (1, 3), (1, 5)}  # 4 and 5 are in range, but that is a cycle
    network.sent.clear()
    network.cut((2, 3))
    network.run(5)
    assert network.tree() == {(2, 4), (4, 5), (1, 5), (1, 3)} and network.leaders() == [GL]
    assert [network.parent(node) for node in (4, 5, 1, 3)] == [2, 4, 5, 1]
    wanted = names(
        "A.2@2, A.1@3, A.3@3, A.6@3, B.1@2, C.1@1, C.1@5, C.1@4, C.2@2, D.2@1, D.4@1, D.2@5, D.4@5, D.1@4,"
        "E.1@4, E.4@4, E.1@5, E.3@5, E.1@1, E.3@1, E.2@3, F.1@1, F.2@5"
    )
    assert edges(network) >= wanted


def test_case_5_a_node_that_joins_chooses_the_better_of_two_ways() -> None:
    network = led([2, 3, 4, 5], [(2, 4), (2, 3), (3, 5)])
    network.boot(1)
    network.connect((1, 4), (1, 5))
    network.run(6)
    assert network.tree() == {(2, 4), (2, 3), (3, 5), (1, 4)} and network.leaders() == [GL]
    assert edges(network, joined=[1]) >= names(
        "B.1@2, B.2@1, B.4@1, C.1@5, C.1@4, C.2@2, D.1@5, D.1@4, E.2@1, E.1@4, E.4@4"
    )


@pytest.mark.parametrize(("additions", "answers"), [(False, 1), (True, 2)])
def test_a_repair_that_comes_by_two_ways_is_answered_once_in_the_work(additions: bool, answers: int) -> None:
    """Section 4.2: a request that was seen is dropped unless it comes from the upstream. Node 3 asks, its
    children 5 and 6 pass it on, and node 4, which can answer, hears both."""
    options = TreeOptions(preset="driving", additions=additions, reply_wait=0.2, ttl_increment=10)
    network = led([2, 3, 4, 5, 6], [(2, 3), (3, 5), (3, 6), (2, 4)], options=options)
    network.connect((5, 4), (6, 4))
    network.run(0.01)
    network.sent.clear()
    network.cut((2, 3))
    network.run(5)
    (first,) = {each.message.request for each in network.of(RouteReply)}  # type: ignore[union-attr]
    offers = [each for each in network.of(RouteReply) if each.sender == 4]
    assert first.requester == 3 and len(offers) == answers
    assert len(network.tree()) == 4 and network.leaders() == [GL]


@pytest.mark.parametrize(("left", "right"), [(1, 1), (2, 1), (2, 3)])
def test_a_merge_takes_the_messages_of_equation_4_2(left: int, right: int) -> None:
    """GL1 is `left` hops from C1, GL2 `right` hops from C2, and C1 and C2 come into range. The work counts
    the hops of a request, a reply and an activation: equation 4.2, which equals 4.1. Ours confirms links
    besides: each that was turned round, and the new one."""
    size = left + right + 2
    first = [(node, node + 1) for node in range(left)]
    second = [(node - 1, node) for node in range(size - 1, left + 1, -1)]
    options = TreeOptions(preset="driving", additions=False, quiet_probes=False, jitter=0.0)
    # GL1 has the better label, so GL2 steps down, as in 4.4.
    network = led(range(size), first + second, leaders=[0, size - 1], options=options)
    assert network.leaders() == [0, size - 1]
    network.connect((left, left + 1))
    network.run(0.01)
    network.sent.clear()
    search = network.nodes[0].protocol.search  # type: ignore[attr-defined]
    network.step(0, partial(search.generate_rreq, Purpose.RECONNECT))
    network.run(1.2)
    assert network.leaders() == [0] and len(network.tree()) == size - 1
    asked = network.sent[0].message
    assert isinstance(asked, RouteRequest)
    hops = Counter(
        type(each.message)
        for each in network.sent
        if isinstance(each.message, OfRequest) and each.message.request == asked.request
    )
    # The request is broadcast by GL1 and each node down to C1, whose broadcast is the hop to C2.
    assert hops == {RouteRequest: left + 1 + right, RouteReply: left + 1 + right, Activation: left + 1}
    assert hops.total() == 3 * (left + 1) + 2 * right  # equation 4.1
    assert len(network.of(Confirm)) == right + 1
