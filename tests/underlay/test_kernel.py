"""The routing table of the host as an underlay: a table made by hand, and how Linux writes its own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import InputError
from roamcast.testing import FakeHost
from roamcast.underlay import UNDERLAYS
from roamcast.underlay.addresses import (
    HostRoute,
    Subnet,
    dotted,
    parse_dotted,
    parse_proc_arp,
    parse_proc_route,
)
from roamcast.underlay.base import UnderlayContext
from roamcast.underlay.kernel import Kernel, KernelOptions
from roamcast.units import SECOND

SUBNET = Subnet()


def route(node: int, via: int | None = None, metric: int = 1) -> HostRoute:
    return HostRoute(SUBNET.address(node), None if via is None else SUBNET.address(via), metric)


class FakeTable:
    def __init__(self, *routes: HostRoute) -> None:
        self.now = list(routes)

    def routes(self) -> list[HostRoute]:
        return list(self.now)


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_neighbour_up(self, neighbour: int) -> None:
        self.heard.append(f"up {neighbour}")

    def on_neighbour_down(self, neighbour: int) -> None:
        self.heard.append(f"down {neighbour}")

    def on_routes_changed(self) -> None:
        self.heard.append("routes")


def kernel(table: FakeTable) -> tuple[Kernel, FakeHost, Listener]:
    host = FakeHost(node=0)
    underlay = Kernel(UnderlayContext(host, routing_table=table), KernelOptions(interval=1.0))
    host.attach(underlay)
    listener = Listener()
    underlay.listen(listener)
    underlay.on_start()
    return underlay, host, listener


def test_neighbours_routes_and_distances_are_those_of_the_table() -> None:
    # 1 is on the link; 2 is its own gateway, as olsrd writes neighbours; 3 and 4 are behind 2.
    table = FakeTable(route(1), route(2, via=2), route(3, via=2, metric=2), route(4, via=2, metric=3))
    underlay, _, listener = kernel(table)
    assert underlay.neighbours() == [1, 2] and underlay.known_nodes() == [1, 2, 3, 4]
    assert [underlay.next_hop(node) for node in range(1, 6)] == [1, 2, 2, 2, None]
    assert [underlay.distance(node) for node in range(1, 6)] == [1, 1, 2, 3, None]
    assert listener.heard == ["up 1", "up 2", "routes"]


def test_changes_are_noticed_at_the_next_look_and_reported_once() -> None:
    table = FakeTable(route(1), route(2, via=1, metric=2))
    underlay, host, listener = kernel(table)
    listener.heard.clear()
    host.advance(10 * SECOND)
    assert listener.heard == []
    table.now = [route(2, via=2), route(1, via=2, metric=2)]
    host.advance(SECOND - 1)
    assert listener.heard == []
    host.advance(1)
    assert listener.heard == ["down 1", "up 2", "routes"]
    table.now = []
    underlay.on_link_failure(2)  # does not wait
    assert listener.heard[3:] == ["down 2", "routes"] and underlay.known_nodes() == []
    assert host.sent == []


def test_the_better_of_two_routes_counts_and_foreign_hosts_do_not() -> None:
    foreign = parse_dotted("192.168.7.1")
    table = FakeTable(
        route(3, via=2, metric=5),
        route(3, via=1, metric=2),
        route(0, via=1),  # to ourselves
        HostRoute(foreign, None, 1),
        HostRoute(SUBNET.address(9), foreign, 2),  # by a router that runs no node of ours
    )
    underlay, _, _ = kernel(table)
    assert underlay.known_nodes() == [3]
    assert underlay.next_hop(3) == 1 and underlay.distance(3) == 2


def test_a_metric_that_counts_no_hops_still_tells_far_from_near() -> None:
    underlay, _, _ = kernel(FakeTable(route(1, metric=100), route(2, via=1, metric=0)))
    assert [underlay.distance(node) for node in (1, 2)] == [1, 2]


def test_without_a_table_it_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="underlay: is 'kernel'; allowed here: underlays that need no host"):
        UNDERLAYS.make("kernel", UnderlayContext(FakeHost(node=0)))
    made = UNDERLAYS.make("kernel", UnderlayContext(FakeHost(node=0), routing_table=FakeTable()))
    assert isinstance(made, Kernel)


# Relays, by announcements of our own.


def line_of(count: int) -> tuple[list[Kernel], list[FakeHost]]:
    """Nodes in a row, each with the routes that any daemon would have written."""
    hosts = [FakeHost(node=node) for node in range(count)]
    underlays = []
    for node, host in enumerate(hosts):
        way = {other: node + (1 if other > node else -1) for other in range(count) if other != node}
        table = FakeTable(*(route(other, via=via, metric=abs(other - node)) for other, via in way.items()))
        underlay = Kernel(UnderlayContext(host, routing_table=table), KernelOptions())
        host.attach(underlay)
        underlay.on_start()
        underlays.append(underlay)
    return underlays, hosts


def play(underlays: list[Kernel], hosts: list[FakeHost], seconds: int) -> None:
    for _ in range(seconds * 10):
        for node, host in enumerate(hosts):
            host.advance(SECOND // 10)
            for sent in host.sent:
                for other in (node - 1, node + 1):
                    if 0 <= other < len(underlays):
                        underlays[other].on_receive(node, sent.frame.payload)
            host.sent.clear()


def test_who_is_asked_for_relays_announces_itself_and_the_inner_nodes_of_a_line_relay() -> None:
    underlays, hosts = line_of(5)
    play(underlays, hosts, 10)
    assert all(host.records == [] for host in hosts)
    assert [underlay.relays() for underlay in underlays] == [[]] * 5  # nobody has been asked before
    play(underlays, hosts, 10)
    assert [underlay.relays() for underlay in underlays] == [[1, 2], [1, 2, 3], [1, 2, 3], [1, 2, 3], [2, 3]]


def test_relays_that_fall_silent_or_were_never_heard_are_none() -> None:
    underlays, hosts = line_of(3)
    for underlay in underlays:
        underlay.relays()
    play(underlays, hosts, 10)
    assert underlays[0].relays() == [1]
    hosts[0].advance(6 * SECOND)  # three intervals without the others
    assert underlays[0].relays() == []


@given(st.binary(max_size=60))
def test_any_bytes_are_an_announcement_or_one_drop(data: bytes) -> None:
    underlay, host, _ = kernel(FakeTable(route(1)))
    underlay.on_receive(1, data)
    underlay.relays()
    assert len(host.records) <= 1


# What Linux writes.

PROC_ROUTE = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
wlan0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
wlan0\t0200000A\t00000000\t0005\t0\t0\t1\tFFFFFFFF\t0\t0\t0
wlan0\t0300000A\t0200000A\t0007\t0\t0\t2\tFFFFFFFF\t0\t0\t0
wlan0\t0400000A\t0200000A\t0006\t0\t0\t2\tFFFFFFFF\t0\t0\t0
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
"""
PROC_ARP = """\
IP address       HW type     Flags       HW address            Mask     Device
10.0.0.3         0x1         0x2         02:00:00:00:00:03     *        wlan0
10.0.0.2         0x1         0x6         02:00:00:00:00:02     *        wlan0
10.0.0.9         0x1         0x0         00:00:00:00:00:00     *        wlan0
"""


def test_proc_net_route_is_read_without_networks_and_dead_routes() -> None:
    first, second = parse_dotted("10.0.0.2"), parse_dotted("10.0.0.3")
    assert parse_proc_route(PROC_ROUTE) == [HostRoute(first, None, 1), HostRoute(second, first, 2)]
    assert parse_proc_route("") == []


def test_proc_net_arp_gives_those_who_answered() -> None:
    assert [dotted(address) for address in parse_proc_arp(PROC_ARP)] == ["10.0.0.2", "10.0.0.3"]


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (parse_proc_route, "head\nwlan0 02", "/proc/net/route:2: is no line of the routing table"),
        (parse_proc_route, PROC_ROUTE + "wlan0 zz 0 1 0 0 0 0 0", "/proc/net/route:7: is no line"),
        (parse_proc_arp, "head\n10.0.0.2", "/proc/net/arp:2: is no line of the ARP table"),
    ],
)
def test_what_is_no_table_is_refused_with_its_place(parse: type, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert said in str(caught.value)


@given(st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_table_or_an_input_error(text: str) -> None:
    for parse in (parse_proc_route, parse_proc_arp):
        for whole in (text, "head\n" + text):
            try:
                parse(whole)
            except InputError:
                continue


@given(st.integers(0, 2**32 - 1))
def test_addresses_survive_being_written_and_read(address: int) -> None:
    assert parse_dotted(dotted(address)) == address


@given(st.integers(0, 2**24 - 3))
def test_node_numbers_and_addresses_name_each_other(node: int) -> None:
    assert SUBNET.node(SUBNET.address(node)) == node


def test_the_first_node_is_10_0_0_1_and_what_is_outside_is_nobody() -> None:
    assert dotted(SUBNET.address(0)) == "10.0.0.1"
    assert [SUBNET.node(parse_dotted(text)) for text in ("10.0.0.0", "10.255.255.255", "11.0.0.1")] == [
        None
    ] * 3
