"""The evolved protocol with members and routers (A.2: JoinFlag, Member), which section 4.5 simulates."""

from tests.strategy.tree.network import Network

from roamcast.strategy.tree.overlay.messages import Activation, Close, Purpose, RouteReply, RouteRequest
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import NodeId

OPTIONS = TreeOptions(preset="driving", membership="users", additions=False, ttl_increment=10, jitter=0.0)
LINE = [(0, 1), (1, 2), (2, 3), (3, 4), (2, 5)]


def network_of(*members: NodeId) -> Network:
    """Six nodes, five in a row and one beside the middle; these become members, one after the other."""
    network = Network(range(6), LINE, options=OPTIONS)
    network.run(3)
    for member in members:
        set_member(network, member, True)
        network.run(8)
    return network


def set_member(network: Network, node: NodeId, is_member: bool) -> None:
    network.step(node, lambda: network.nodes[node].protocol.set_member(is_member))


def test_without_members_there_is_no_tree_and_nothing_is_said() -> None:
    network = network_of()
    network.run(30)
    assert network.sent == [] and network.leaders() == []


def test_a_member_alone_asks_request_retries_times_and_leads() -> None:
    network = network_of(0)
    asked = [sent.message for sent in network.of(RouteRequest) if sent.sender == 0]
    assert [each.purpose for each in asked[:3]] == [Purpose.JOIN, Purpose.JOIN, Purpose.RECONNECT]  # type: ignore[union-attr]
    assert network.leaders() == [0]


def test_nodes_between_members_become_routers_and_others_stay_out() -> None:
    network = network_of(0, 4)
    assert network.leaders() == [0]
    assert network.open_tree() == {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert [network.parent(node) for node in range(6)] == [None, 0, 1, 2, 3, None]
    assert [network.nodes[node].table.hops for node in range(5)] == [0, 1, 2, 3, 4]
    # The path is activated from the one who joins to the member who answered, over all of the jump.
    taken = [(sent.sender, sent.to) for sent in network.of(Activation)]
    assert taken == [(4, 3), (3, 2), (2, 1), (1, 0)]


def test_a_router_does_not_answer_who_joins_but_takes_the_request_upstream() -> None:
    """Procedure 7, lines 4 and 16: 2 is on the tree and no member, so 0 answers; 2 is the end of the jump."""
    network = network_of(0, 4)
    network.sent.clear()
    set_member(network, 5, True)
    network.run(3)
    replies = network.of(RouteReply)
    assert [(sent.sender, sent.to) for sent in replies] == [(0, 1), (1, 2), (2, 5)]
    assert replies[-1].message.responder == 2  # type: ignore[union-attr]
    assert (2, 5) in network.open_tree() and network.leaders() == [0]


def test_a_leaf_that_is_no_member_leaves_and_so_do_the_routers_that_nobody_needs() -> None:
    network = network_of(0, 4, 5)
    network.sent.clear()
    set_member(network, 4, False)
    network.run(3)
    assert network.open_tree() == {(0, 1), (1, 2), (2, 5)}
    assert [(sent.sender, sent.to) for sent in network.of(Close)] == [(4, 3), (3, 2)]
    assert not [each for each in network.records if each.change == "repaired"]
    set_member(network, 2, True)  # on the tree already: it only becomes a member
    set_member(network, 5, False)
    network.run(3)
    assert network.open_tree() == {(0, 1), (1, 2)} and network.faults_at_rest() == []


def test_a_leader_that_is_no_member_any_more_has_one_lead_who_is() -> None:
    """The GroupLeader flag: the root goes from 2 to a child, and on until it meets a member."""
    network = network_of(2, 0, 4)
    assert network.leaders() == [2] and network.parent(0) == 1
    set_member(network, 2, False)
    network.run(3)
    assert network.leaders() == [0]
    assert network.open_tree() == {(0, 1), (1, 2), (2, 3), (3, 4)}
    network.run(20)
    assert network.faults_at_rest() == []


def test_partitions_are_merged_over_nodes_that_are_on_no_tree() -> None:
    """Section 4.4 with a jump of three hops: one leader steps down, the other activates all of it."""
    network = Network(range(6), [(0, 1), (4, 5)], options=OPTIONS)
    network.run(3)
    for member in (0, 1, 4, 5):
        set_member(network, member, True)
    network.run(20)
    assert len(network.leaders()) == 2
    network.connect((1, 2), (2, 3), (3, 4))
    network.run(8)
    assert network.open_tree() == {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)}
    assert network.faults_at_rest() == []


def test_a_router_without_an_upstream_looks_for_another_and_then_gives_the_root_away() -> None:
    network = network_of(0, 4, 5)
    network.cut((0, 1))
    network.run(20)
    assert network.open_tree() == {(2, 3), (3, 4), (2, 5)}  # 1 is a leaf without 0, and leaves
    assert network.faults_at_rest() == []
