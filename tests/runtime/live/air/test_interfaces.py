"""Several interfaces, IPv6, and interfaces that come and go: from `roamcast node` to `roamcast subscribe`."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.runtime.live.air.devices import Device, Devices, until, what_is_missing

pytestmark = pytest.mark.realtime

QUICK = "presence = 0.2"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    with ExitStack() as stack:
        yield stack


def peers_of(device: Device) -> dict[str, str]:
    """By the interface by which they are reached, their addresses."""
    status = json.loads(device.said("status", "--json"))
    return {peer["interface"]: peer["address"] for peer in status["peers"] if peer["is_up"]}


def test_two_interfaces_with_different_neighbours(stack: ExitStack, tmp_path: Path) -> None:
    """alice - bob by a cable with IPv4, bob - carol by one that has IPv6 only."""
    net = Devices(
        stack,
        tmp_path,
        alice=f'interfaces = ["left"]\n{QUICK}',
        bob=f'interfaces = ["left", "right"]\n{QUICK}',
        carol=QUICK,  # takes what is there
    )
    net.cable("alice.left", "bob.left", "10.1.0")
    net.cable("bob.right", "carol.right")
    alice, bob, carol = net.by_name.values()
    for device in (alice, bob, carol):
        device.start()
    alice.publish("far", "through bob")
    assert carol.received("far", 1) == ["far through bob"]
    carol.publish("back", "through bob")
    assert alice.received("back", 1) == ["back through bob"]
    reached = peers_of(bob)
    assert reached["left"] == "10.1.0.1"
    assert reached["right"].startswith("fe80::") and reached["right"].endswith("%right")
    status = bob.said("status")
    assert "interface     left 10.1.0.2, air port 4747, own port 4748, broadcast, 1 peers" in status
    assert "interface     right fe80::" in status and "multicast, 1 peers" in status


@pytest.mark.parametrize("cut", ["at the switch", "at the device"])
def test_both_ways_lead_to_a_neighbour_and_one_is_cut_while_events_flow(
    stack: ExitStack, tmp_path: Path, cut: str
) -> None:
    air = f'interfaces = ["eth0", "wlan0"]\n{QUICK}'
    net = Devices(stack, tmp_path, alice=air, bob=air)
    eth = net.switch("eth0", "10.1.0")
    net.switch("wlan0", "10.2.0")
    alice, bob = net.by_name.values()
    alice.start()
    bob.start()
    until(lambda: "eth0" in peers_of(alice) and "eth0" in peers_of(bob), "eth0 is preferred")
    subscribe = bob.call("subscribe", "-t", "n", "--socket", bob.socket, "--wait", "60")
    subscriber = subprocess.Popen(subscribe, stdout=subprocess.PIPE, text=True)
    stack.callback(subscriber.communicate)
    stack.callback(subscriber.kill)
    publish = alice.call("publish", "-l", "-t", "n", "--lifetime", "60", "--socket", alice.socket)
    publisher = subprocess.Popen(publish, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert publisher.stdin is not None and subscriber.stdout is not None
    got: list[str] = []
    longest, at = 0.0, 0.0
    for number in range(150):
        if number == 50:
            if cut == "at the switch":
                eth.ip("link set alice nomaster")
            else:
                alice.ip("link set eth0 down")
        publisher.stdin.write(f"{number}\n")
        publisher.stdin.flush()
        began = time.monotonic()
        got.append(subscriber.stdout.readline().strip())
        if number and (took := time.monotonic() - began) > longest:
            longest, at = took, number
    publisher.communicate()
    assert publisher.returncode == 0
    assert got == [f"n {number}" for number in range(150)], "each once, in order, none lost"
    assert longest < 5.0, f"the longest wait for an event, for event {at}"
    until(lambda: set(peers_of(alice)) == {"wlan0"}, "reached by the other one")


def test_an_interface_that_is_named_comes_goes_and_comes_again(stack: ExitStack, tmp_path: Path) -> None:
    air = f'interfaces = ["mesh0"]\n{QUICK}'
    net = Devices(stack, tmp_path, alice=air, bob=air)
    alice, bob = net.by_name.values()
    alice.start()
    bob.start()
    alice.publish("early", "nobody is there")
    assert alice.received("early", 1) == ["early nobody is there"], "local clients are served"
    assert "ERROR: interface mesh0 is not there; here are lo; the node waits for it" in alice.said("status")
    net.cable("alice.mesh0", "bob.mesh0", "10.1.0")
    assert bob.received("early", 1) == ["early nobody is there"]
    alice.ip("link delete mesh0")
    until(lambda: "interface     mesh0 AWAY: is not there" in bob.said("status"), "it is gone")
    alice.publish("late", "while it was away")
    net.cable("alice.mesh0", "bob.mesh0", "10.1.0")
    assert bob.received("late", 1) == ["late while it was away"]
    assert "own port 4748" in bob.said("status")


def test_nodes_with_ipv6_only_and_with_both_hear_each_other(stack: ExitStack, tmp_path: Path) -> None:
    net = Devices(stack, tmp_path, alice=QUICK, bob=QUICK)
    net.cable("alice.mesh0", "bob.mesh0")
    alice, bob = net.by_name.values()
    alice.ip("address add 10.1.0.1/24 dev mesh0")
    alice.start()
    bob.start()
    alice.publish("six", "from four")
    assert bob.received("six", 1) == ["six from four"]
    bob.publish("four", "from six")
    assert alice.received("four", 1) == ["four from six"]
    (address,) = peers_of(bob).values()
    assert address.startswith("fe80::")
