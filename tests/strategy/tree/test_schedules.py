"""Random schedules (`schedules.py`): acyclic at every instant, one tree per partition at rest.

A hundred and fifty here, ten thousand in `tests/torture`. What a rule of `docs/protocols/tree.md` is for is
shown by taking it away: the named seed then fails.
"""

import pytest
from tests.strategy.tree.mutants import MUTANTS, without_withdrawal
from tests.strategy.tree.network import Network, Weather
from tests.strategy.tree.schedules import SETTINGS, play

from roamcast.host import Frame, Kind
from roamcast.strategy.tree.overlay.evolved import Evolved
from roamcast.strategy.tree.overlay.messages import (
    CODEC,
    Label,
    ReplyStage,
    RequestKey,
    RouteReply,
    StatedLabel,
)
from roamcast.strategy.tree.overlay.multicast_table import Reverse
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import MILLISECOND

SCHEDULES = 150
BATCH = 25


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
def test_random_schedules_make_no_cycle_and_end_in_one_tree_per_partition(first: int) -> None:
    for seed in range(first, first + BATCH):
        play(seed)


@pytest.mark.long
@pytest.mark.parametrize("setting", [each for each in SETTINGS if each != "driving"])
def test_the_other_settings_make_no_cycle_either(setting: str) -> None:
    received = sum(play(seed, setting).objects_received for seed in range(BATCH))
    assert received  # else nothing could come twice


@pytest.mark.parametrize(
    ("rule", "seed", "fault"),
    [
        ("R1", 76, "goes against the labels"),
        ("R2", 0, "goes against the labels"),
        ("R3", 53, "has no lower end"),
        ("R6", 0, "has no lower end"),
        ("R9", 587, "does not span"),
    ],
)
def test_each_rule_is_needed(rule: str, seed: int, fault: str) -> None:
    with MUTANTS[rule](), pytest.raises(AssertionError, match=fault):
        play(seed)
    play(seed)


def test_a_lone_leader_does_not_ask_so_often_that_every_reply_comes_too_late() -> None:
    """R9, found by a schedule: 5 asks every 0.3 to 0.5 s, and a reply from 4 takes 1.5."""
    options = TreeOptions(preset="driving", discover_timeout=0.3)
    network = Network(range(5), [(node, node + 1) for node in range(4)], options=options)
    network.run(40)
    (leader,) = network.leaders()
    network.weather = Weather(delay=(150 * MILLISECOND, 200 * MILLISECOND))
    network.boot(5)
    network.connect((4 if leader < 2 else 0, 5))
    network.run(5)
    assert network.faults_at_rest() == []


def test_a_leader_that_yields_over_a_long_slow_way_waits_longer_each_time() -> None:
    """Found by a schedule: the way to the other leader and back takes 2 s, the wait was 0.6 s for ever."""
    assert play(301_041, "prompt").rest_s < 30


def test_a_node_that_starts_over_has_withdrawn_the_offer_that_is_being_taken() -> None:
    """R2, found by a schedule: 0 had taken a link of 3 that 3 had forgotten, and offered one to 3. When 3
    took that, 0 lost the old link, led itself with a label that begins anew, and opened the new link."""
    with without_withdrawal(), pytest.raises(AssertionError, match="goes against the labels"):
        play(311_792, "adaptive")
    play(311_792, "adaptive")


def test_a_router_that_becomes_a_member_while_its_link_is_taken_does_not_stay_without_a_leader() -> None:
    """Found by a schedule: 1 had offered 4 a link as a node of the jump, became a member, and 4 took it."""
    play(312_829, "members")


def test_a_schedule_is_the_same_for_ever() -> None:
    assert play(7).sent == play(7).sent


def test_a_reply_is_passed_on_once_even_if_two_nodes_have_its_request_from_each_other() -> None:
    network = Network([0, 1, 2], [(0, 1)], options=TreeOptions(preset="driving"))
    network.run(4)
    request = RequestKey(2, 7)
    for node, other in ((0, 1), (1, 0)):
        protocol = network.nodes[node].protocol
        assert isinstance(protocol, Evolved)
        protocol.search.reverses.put(request, Reverse(Label(1, 2, 0), free=other))
    network.sent.clear()
    reply = RouteReply(*request, 5, StatedLabel(9, 5, 0, 0), 0, ReplyStage.NEAR, False, 0, 0)
    network.nodes[0].overlay.on_receive(1, CODEC.encode(reply))
    network.run(1)
    assert len(network.of(RouteReply)) == 2  # 0 to 1, 1 to 0, and there it ends


def test_deep_trees_that_touch_at_their_leaves_are_merged() -> None:
    """R8: TTL_THRESHOLD is 10, the way between the leaders 30 hops."""
    size = 15
    nodes = range(2 * size)
    chain = [(each, each + 1) for each in nodes[:-1] if each != size - 1]
    network = Network(nodes, chain, options=TreeOptions(preset="driving"))
    network.run(40)
    assert len(network.leaders()) == 2
    network.connect((size - 1, size))
    network.run(20)
    assert network.faults_at_rest() == []


def test_data_crosses_a_tree_link_and_nothing_else() -> None:
    network = Network([0, 1, 2], [(0, 1), (1, 2), (0, 2)], options=TreeOptions(preset="driving"))
    network.run(8)
    tree = network.open_tree()
    failed: list[int] = []
    for a in range(3):
        for b in range(3):
            if a != b:
                network.nodes[a].overlay.send(
                    b,
                    Frame(b"%d" % a, Kind.DATA, "test"),
                    on_failure=lambda _, a=a: failed.append(a),  # type: ignore[misc]
                )
    network.run(0.1)
    assert {(to, sender) for to, sender, _ in network.received} == tree | {(b, a) for a, b in tree}
    assert len(failed) == 2
