"""The five white-box cases of section 6.1.3 in the harness, with the edges that the work says they cover."""

from collections import Counter
from collections.abc import Iterable
from functools import partial

import pytest
from tests.strategy.tree.network import Network, Pair
from tests.strategy.tree.white_box import EDGES, GL, JOINED, TREES, edges

from roamcast.strategy.tree.overlay.messages import (
    Activation,
    Confirm,
    Label,
    OfRequest,
    Purpose,
    RouteReply,
    RouteRequest,
)
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import NodeId

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


def covers(network: Network, case: int) -> None:
    tree, leaders = TREES[case]
    assert network.tree() == tree and network.leaders() == leaders
    assert edges(network, JOINED.get(case, ())) >= EDGES[case]


def test_case_1_a_lost_upstream_is_replaced_by_a_node_in_range() -> None:
    network = led([1, 2, 3, 4], [(2, 3), (2, 4), (1, 3)])
    assert network.tree() == {(2, 3), (2, 4), (1, 3)}
    network.connect((1, 4))
    network.cut((1, 3))
    network.run(4)
    covers(network, 1)


def test_case_2_two_partitions_are_merged_by_nodes_between_their_leaders() -> None:
    network = led([1, 2, 3, 4], [(1, 2), (3, 4)], leaders=[2, 3])
    assert network.leaders() == [2, 3]
    network.connect((1, 4))
    network.run(6)
    covers(network, 2)


def test_case_3_a_node_disappears_and_another_appears_elsewhere() -> None:
    network = led([1, 2, 3, 4, 6], [(2, 3), (2, 4), (1, 3), (1, 6)])
    network.crash(3)
    network.boot(5)
    network.connect((2, 5), (4, 5))
    network.run(8)
    covers(network, 3)
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
    covers(network, 4)
    assert [network.parent(node) for node in (4, 5, 1, 3)] == [2, 4, 5, 1]


def test_case_5_a_node_that_joins_chooses_the_better_of_two_ways() -> None:
    network = led([2, 3, 4, 5], [(2, 4), (2, 3), (3, 5)])
    network.boot(1)
    network.connect((1, 4), (1, 5))
    network.run(6)
    covers(network, 5)


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
