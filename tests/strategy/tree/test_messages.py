"""Hostile input: whatever arrives is dropped or fits; nothing of it makes a cycle or stops a node."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategy.tree.network import Network, Sent

from roamcast.strategy.tree.overlay.messages import (
    CODEC,
    Activation,
    Close,
    Confirm,
    GroupHello,
    OverlayMessage,
    Probe,
    Purpose,
    ReplyStage,
    RouteReply,
    RouteRequest,
    Sighting,
    SpreadData,
    StatedLabel,
    TreeData,
)
from roamcast.strategy.tree.parameters import TreeOptions

NODES = range(6)
LINKS = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (1, 4)]
OPTIONS = TreeOptions(preset="driving")

nodes = st.integers(0, 8)  # two of them unknown
numbers = st.integers(0, 2**62 - 1)
standings = st.builds(
    StatedLabel, st.integers(0, 2**48 - 1), nodes, st.integers(-(2**40), 2**40), st.integers(0, 255)
)
messages: st.SearchStrategy[OverlayMessage] = st.one_of(
    st.builds(
        RouteRequest,
        nodes,
        numbers,
        standings,
        st.integers(0, 255),
        st.integers(0, 255),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        RouteReply,
        nodes,
        numbers,
        nodes,
        standings,
        st.integers(0, 255),
        st.sampled_from(ReplyStage),
        st.booleans(),
        numbers,
        st.integers(0, 9),
    ),
    st.builds(
        Activation,
        nodes,
        numbers,
        nodes,
        standings,
        st.sampled_from(ReplyStage),
        st.booleans(),
        numbers,
        st.integers(0, 9),
    ),
    st.builds(
        GroupHello,
        standings,
        st.integers(1, 10_000_000),
        st.booleans(),
        st.lists(st.tuples(nodes, numbers), max_size=4).map(tuple),
    ),
    st.builds(Confirm, numbers, st.integers(0, 9)),
    st.builds(Close, numbers),
    st.builds(Probe, numbers),
    st.builds(TreeData, numbers, st.binary(max_size=8)),
    st.builds(Sighting, numbers),
    st.builds(SpreadData, st.lists(st.tuples(nodes, numbers), max_size=4).map(tuple), st.binary(max_size=8)),
)


def inject(network: Network, to: int, sender: int, payload: bytes) -> None:
    node = network.nodes[to]
    network._step(node, lambda: node.overlay.on_receive(sender, payload))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(NODES), nodes, messages), min_size=1, max_size=40))
def test_random_valid_messages_make_no_cycle_and_do_no_lasting_harm(
    storm: list[tuple[int, int, OverlayMessage]],
) -> None:
    network = Network(NODES, LINKS, options=OPTIONS)
    network.run(8)
    for to, sender, message in storm:
        if sender != to:
            inject(network, to, sender, CODEC.encode(message))
            network.run(0.05)
    network.run(30)
    assert network.faults_at_rest() == []


def test_a_forged_request_does_not_send_the_root_to_and_fro() -> None:
    """Found by the storm above: two nodes had the request from each other, and each yielded to it."""
    network = Network(NODES, LINKS, options=OPTIONS)
    network.run(8)
    standing = StatedLabel(1_000_000, 0, 1_000_000, 120)
    request = RouteRequest(6, 5258703, standing, 30, 112, True, Purpose.RECONNECT)
    for to, sender in ((1, 0), (0, 1), (4, 1)):
        inject(network, to, sender, CODEC.encode(request))
    network.run(30)
    assert network.faults_at_rest() == []


@pytest.mark.parametrize("numbers", [(5, 5), (5, 6)])
@pytest.mark.parametrize("overhears", [False, True])
def test_data_that_names_us_twice_over_no_link_of_ours_is_refused_as_a_whole(
    numbers: tuple[int, int], overhears: bool
) -> None:
    """Found by the storm above: the refusal took away one of the two names, and the data went up."""
    network = Network([0, 1], options=OPTIONS)
    network.links.add((0, 1))
    network.nodes[0].overlay._overhears = overhears
    inject(network, 0, 1, CODEC.encode(SpreadData(tuple((0, number) for number in numbers), b"")))
    assert network.received == []
    assert [each.message for each in network.sent] == [Close(5)]


def test_a_storm_with_data_that_names_its_receiver_twice_does_no_lasting_harm() -> None:
    network = Network(NODES, LINKS, options=OPTIONS)
    network.run(8)
    request = RouteRequest(0, 0, StatedLabel(0, 0, 0, 0), 0, 0, False, Purpose.REPAIR)
    for message in (request, request, SpreadData(((0, 0), (0, 0)), b"")):
        inject(network, 0, 2, CODEC.encode(message))
        network.run(0.05)
    network.run(30)
    assert network.faults_at_rest() == []


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_messages_replayed_to_their_own_addressees_in_any_order_make_no_cycle(chance: object) -> None:
    network = Network(NODES, LINKS, options=OPTIONS)
    network.run(4)
    network.cut((2, 3))
    network.run(2)
    network.connect((2, 3))
    network.cut((0, 1))
    network.run(4)
    heard: list[Sent] = list(network.sent)
    for _ in range(60):
        old = chance.choice(heard)  # type: ignore[attr-defined]
        for to in NODES if old.to is None else [old.to]:
            if to != old.sender and network.works(old.sender, to):
                inject(network, to, old.sender, CODEC.encode(old.message))
        network.run(0.02)
    network.run(30)
    assert network.faults_at_rest() == []


@given(st.binary(max_size=200), st.booleans())
def test_octets_that_are_no_message_are_dropped_and_counted(octets: bytes, versioned: bool) -> None:
    network = Network([0, 1], [(0, 1)], options=OPTIONS)
    network.run(3)
    payload = b"\x01" + octets if versioned else octets
    try:
        CODEC.decode(payload)
    except Exception:
        before = network.nodes[0].state()
        inject(network, 0, 1, payload)
        assert network.nodes[0].state() == before
        assert network.refused == 1


def test_another_version_of_the_protocol_is_refused() -> None:
    network = Network([0, 1], [(0, 1)], options=OPTIONS)
    network.run(3)
    inject(network, 0, 1, b"\x01" + CODEC.encode(Close(1))[1:])
    assert network.refused == 1


def test_a_reboot_within_a_beacon_makes_the_old_link_die_by_its_number() -> None:
    network = Network([0, 1], [(0, 1)], options=OPTIONS)
    network.run(5)
    assert network.open_tree() == {(0, 1)}
    network.crash(1)
    network.boot(1)  # node 0 has noticed nothing
    assert network.tree() == set()
    network.run(10)
    assert network.open_tree() == {(0, 1)}


@pytest.mark.parametrize(
    "message", [Probe(5), Confirm(5, 0), TreeData(5, b"x"), SpreadData(((0, 5), (1, 5)), b"x")]
)
def test_a_message_about_an_unknown_link_is_answered_by_a_close(message: OverlayMessage) -> None:
    network = Network([0, 1], options=OPTIONS)
    network.links.add((0, 1))
    inject(network, 0, 1, CODEC.encode(message))
    assert network.sent[-1].message == Close(5)
    assert [record.detail for record in network.dropped] == ["names no link of ours"]


def test_a_close_to_an_unknown_link_is_not_answered() -> None:
    network = Network([0, 1], options=OPTIONS)
    inject(network, 0, 1, CODEC.encode(Close(5)))
    assert network.sent == []


def test_the_wire_form_of_a_request_is_this() -> None:
    request = RouteRequest(3, 70_000, StatedLabel(9, 2, 1 << 20, 1), 10, 0, False, Purpose.RECONNECT)
    # version; array of 8: tag 1, requester, number (32 bits), array of 4, time to live, hops, flags
    assert CODEC.encode(request).hex() == "02980103ce000111709409 02ce00100000010a00c201".replace(" ", "")
    assert msgspec.msgpack.decode(CODEC.encode(request)[1:])[0] == 1
