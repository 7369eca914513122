"""The original protocol as its draft has it: members and routers, join, prune, the selection of a leader."""

import msgspec
import pytest
from tests.strategy.tree.network import Network
from tests.strategy.tree.test_faults_of_the_original import standing_tree

from roamcast.strategy.tree.overlay.messages import MaodvActivation, MaodvReply, MaodvRequest
from roamcast.strategy.tree.overlay.original import Original
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import NodeId

OPTIONS = TreeOptions(
    protocol="original",
    preset="driving",
    membership="users",
    ttl_increment=10,
    jitter=0.0,
)
LINE = [(0, 1), (1, 2), (2, 3), (3, 4), (2, 5)]


def network_of(*members: NodeId, options: TreeOptions = OPTIONS) -> Network:
    """Six nodes, five in a row and one beside the middle; these are members."""
    network = Network(range(6), LINE, options=options, allow_cycles=True)
    network.run(3)
    for member in members:
        protocol(network, member).set_member(True)
        network.run(20)
    return network


def protocol(network: Network, node: NodeId) -> Original:
    found = network.nodes[node].protocol
    assert isinstance(found, Original)
    return found


def activations(network: Network, **flags: bool) -> list[tuple[NodeId, NodeId | None]]:
    return [
        (sent.sender, sent.to)
        for sent in network.sent
        if isinstance(sent.message, MaodvActivation)
        and all(getattr(sent.message, name) == value for name, value in flags.items())
    ]


def test_without_members_there_is_no_tree() -> None:
    network = network_of()
    network.run(30)
    assert network.sent == [] and network.leaders() == []


def test_nodes_between_members_become_routers_and_others_stay_out() -> None:
    network = network_of(0, 4)
    assert network.leaders() == [0]
    assert network.open_tree() == {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert [protocol(network, node).is_member for node in range(6)] == [
        True,
        False,
        False,
        False,
        True,
        False,
    ]
    assert network.nodes[4].table.hops == 4 and network.parent(2) == 1
    assert activations(network, join=True) == [(4, 3), (3, 2), (2, 1), (1, 0)]


def test_a_member_that_leaves_prunes_itself_and_the_routers_that_nobody_needs() -> None:
    network = network_of(0, 4, 5)
    assert (2, 5) in network.open_tree()
    protocol(network, 4).set_member(False)
    network.run(10)
    assert network.open_tree() == {(0, 1), (1, 2), (2, 5)}
    assert activations(network, prune=True) == [(4, 3), (3, 2)]
    protocol(network, 2).set_member(True)  # on the tree already: it only becomes a member
    protocol(network, 5).set_member(False)
    network.run(10)
    assert network.open_tree() == {(0, 1), (1, 2)}


def test_a_member_that_leaves_and_is_no_leaf_goes_on_as_a_router() -> None:
    network = network_of(0, 2, 4)
    protocol(network, 2).set_member(False)
    network.run(10)
    assert network.open_tree() == {(0, 1), (1, 2), (2, 3), (3, 4)}


def test_a_router_that_finds_no_way_back_has_a_descendant_lead() -> None:
    network = network_of(0, 4, 5)
    assert network.leaders() == [5] and network.parent(2) == 5
    network.cut((2, 5))
    network.run(60)
    assert activations(network, leader=True)
    assert network.leaders() == [4, 5]  # members lead, no router does
    assert network.open_tree() == {(0, 1), (1, 2), (2, 3), (3, 4)}  # 0 led for a while; then the trees merged


def test_a_router_does_not_answer_who_joins() -> None:
    """Function 1 (m = j, or j = FALSE): 5 hears router 2 only, so it leads a tree of its own, and merges."""
    network = network_of(0, 4)
    assert network.leaders() == [0]
    protocol(network, 5).set_member(True)
    network.run(1.9)
    assert not [sent for sent in network.sent if isinstance(sent.message, MaodvReply) and sent.to == 5]
    network.run(20)
    assert network.leaders() == [5] and (2, 5) in network.open_tree()


@pytest.mark.parametrize("forwards", [False, True])
def test_routers_pass_requests_on_only_in_dortmunds_code(forwards: bool) -> None:
    """Figure 3.13 with routers. 2 lost 6; 4 and 1, routers below it, would carry its request to 5, and the
    activation would close a cycle. In Carleton's code nobody on the tree passes a request on."""
    options = msgspec.structs.replace(OPTIONS, member_forwarding=forwards, hello_workaround=False)
    parents = {0: None, 6: 0, 5: 0, 2: 6, 3: 2, 4: 2, 1: 3, 7: 1, 8: 4}
    network = standing_tree(options, parents)
    for member in (0, 7, 8):
        protocol(network, member).is_member = True
    network.connect((1, 5), (1, 4))
    network.lose = lambda sender, to, message: (
        isinstance(message, MaodvRequest) and ({sender, to} == {2, 3} or to == 7)
    )
    network.sent.clear()
    network.cut((2, 6))
    network.run(1.5)
    relayed = {sent.sender for sent in network.of(MaodvRequest)} & {1, 3, 4}
    assert bool(relayed) is forwards
    assert bool(network.cycles) is forwards


def test_a_leader_that_leaves_has_a_descendant_lead() -> None:
    network = network_of(0, 1, 2)
    protocol(network, 0).set_member(False)
    network.run(30)
    assert network.open_tree() == {(1, 2)} and network.leaders() == [1]


def test_an_activation_is_repeated_only_if_the_option_says_so() -> None:
    for repeats in (False, True):
        options = TreeOptions(
            protocol="original",
            preset="driving",
            membership="users",
            repeat_activation=repeats,
            hello_workaround=False,
            ttl_increment=10,
            jitter=0.0,
        )
        network = network_of(0, options=options)
        lost: list[NodeId] = []

        def first_is_lost(sender: NodeId, to: NodeId, message: object, lost: list[NodeId] = lost) -> bool:
            if isinstance(message, MaodvActivation) and not lost:
                lost.append(sender)
                return True
            return False

        network.lose = first_is_lost
        protocol(network, 1).set_member(True)
        network.run(5)
        assert lost == [1]
        assert network.open_tree() == ({(0, 1)} if repeats else set())
