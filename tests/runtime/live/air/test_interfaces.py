"""Several interfaces, IPv6, and interfaces that come and go: from `roamcast node` to `roamcast subscribe`."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from select import select

import pytest
from tests.runtime.live.air.devices import WITHIN, Devices, until, what_is_missing

from roamcast.client.status import peers_to_text, to_text

pytestmark = pytest.mark.realtime

QUICK = "presence = 0.2"
HEALED = 10.0  # seconds, on a busy machine


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    with ExitStack() as stack:
        yield stack


def test_two_interfaces_with_different_neighbours(stack: ExitStack, tmp_path: Path) -> None:
    """alice - bob by a cable with IPv4, bob - carol by one on which bob has IPv6 only and carol has both."""
    net = Devices(
        stack,
        tmp_path,
        alice=f'interface = "left"\n{QUICK}',
        bob=f'interfaces = ["left", "right"]\n{QUICK}',
        carol=QUICK,  # takes what is there
    )
    net.cable("alice.left", "bob.left", "10.1.0")
    net.cable("bob.right", "carol.right")
    alice, bob, carol = net.by_name.values()
    carol.ip("address add 10.2.0.3/24 dev right")
    net.start()
    alice.publish("far", "through bob")
    assert carol.received("far") == "far through bob"
    carol.publish("back", "through bob")
    assert alice.received("back") == "back through bob"
    status = bob.status()
    reached = {peer.interface: peer.address for peer in status.peers}
    assert reached["left"] == "10.1.0.1"
    assert reached["right"].startswith("fe80::") and reached["right"].endswith("%right")
    text = to_text(status)
    assert "interface     left 10.1.0.2, air port 4747, own port 4748, broadcast, 1 peers" in text
    assert "interface     right fe80::" in text and "multicast, 1 peers" in text
    assert "%right]:4748  right" in peers_to_text(status)


@pytest.mark.parametrize(
    ("strategy", "cut", "size"),
    [("epidemic", "at the device", 1), ("chapar", "at the switch", 7_000)],  # the latter over TCP links
    ids=["epidemic", "chapar"],
)
def test_both_ways_lead_to_a_neighbour_and_one_is_cut_while_events_flow(
    stack: ExitStack, tmp_path: Path, strategy: str, cut: str, size: int
) -> None:
    air = f'interfaces = ["eth0", "wlan0"]\n{QUICK}\n[strategy]\nname = "{strategy}"'
    net = Devices(stack, tmp_path, alice=air, bob=air)
    eth = net.switch("eth0", "10.1.0")
    net.switch("wlan0", "10.2.0")
    alice, bob = net.by_name.values()
    net.start()
    until(lambda: "eth0" in alice.reached() and "eth0" in bob.reached(), "eth0 is preferred")
    subscribe = bob.call("subscribe", "-t", "n", "--socket", bob.socket)
    subscriber = subprocess.Popen(subscribe, stdout=subprocess.PIPE, text=True)
    stack.callback(subscriber.communicate)
    stack.callback(subscriber.kill)
    assert subscriber.stdout is not None
    got: list[str] = []
    longest = 0.0
    with alice.client() as publisher:
        while not select([subscriber.stdout], [], [], 0.3)[0]:  # until the subscription is known to the mesh
            publisher.publish(topic="n", payload="is anybody there?")
        for number in range(100):
            if number == 50 and cut == "at the switch":
                eth.ip("link set alice nomaster")
            elif number == 50:
                alice.ip("link set eth0 down")
            publisher.publish(topic="n", attributes={"n": number}, payload="x" * size, lifetime=60.0)
            began = time.monotonic()
            while "anybody" in (line := subscriber.stdout.readline()):
                pass
            got.append(line.partition(" x")[0])
            longest = max(longest, time.monotonic() - began)
    assert got == [f"n n={number}" for number in range(100)], "each once, in order, none lost"
    assert longest < HEALED
    until(lambda: set(alice.reached()) == {"wlan0"}, "reached by the other one")


def test_an_interface_that_is_named_comes_goes_and_comes_again(stack: ExitStack, tmp_path: Path) -> None:
    """And has IPv6 only."""
    air = f'interfaces = ["mesh0"]\n{QUICK}'
    net = Devices(stack, tmp_path, alice=air, bob=air)
    alice, bob = net.by_name.values()
    net.start()
    alice.publish("early", "nobody is there")
    assert alice.received("early") == "early nobody is there", "local clients are served"
    away = "ERROR: interface mesh0 is not there; here are lo; the node waits for it"
    assert away in to_text(alice.status())
    net.cable("alice.mesh0", "bob.mesh0")
    assert bob.received("early") == "early nobody is there"
    alice.ip("link delete mesh0")
    until(lambda: away in to_text(bob.status()), "it is gone", WITHIN)
    alice.publish("late", "while it was away")
    net.cable("alice.mesh0", "bob.mesh0")
    assert bob.received("late") == "late while it was away"
    assert "own port 4748, multicast" in to_text(bob.status())
