"""`kill -9` of real nodes while messages flow. At length: `tests/torture/test_killed_nodes.py`."""

from pathlib import Path

import pytest
from tests.daemon.programs import network_on_loopback
from tests.gateway.mqtt.harness import in_loop
from tests.gateway.mqtt.killing import kill_at_random
from tests.gateway.mqtt.lasting import LastingClient, eventually

pytestmark = pytest.mark.realtime


@in_loop
async def test_memorized_messages_survive_kills_of_both_nodes(tmp_path: Path) -> None:
    counts = await kill_at_random(tmp_path, seed=1, rounds=2)
    assert counts.kills >= 2 and counts.sent > 20
    assert (counts.lost, counts.doubled_exactly_once, counts.doubled_confirmed) == (0, 0, 0)


@in_loop
async def test_a_full_store_makes_publishers_wait_and_loses_nothing(tmp_path: Path) -> None:
    """Far more messages than the stores of both nodes take, and nodes that are killed meanwhile."""
    counts = await kill_at_random(tmp_path, seed=2, rounds=2, events_max=15, burst=200)
    assert counts.sent > 45
    assert (counts.lost, counts.doubled_exactly_once, counts.doubled_confirmed) == (0, 0, 0)


@in_loop
async def test_what_waited_for_an_absent_client_comes_once_after_a_kill(tmp_path: Path) -> None:
    """Issue 19, found 3: the neighbour still offers the events of before, and the restarted node had them."""
    alice, bob = network_on_loopback(tmp_path, "alice", "bob")
    clients: list[LastingClient] = []
    try:
        alice.start()
        bob.start()
        absent = LastingClient(bob.mqtt_port, "sub", subscribe="site/#")
        witness = LastingClient(bob.mqtt_port, "witness", subscribe="site/#")
        publisher = LastingClient(alice.mqtt_port, "pub")
        clients += [absent, witness, publisher]
        for client in clients:
            await client.settled.wait()
        number = 0
        while not witness.arrived:  # the nodes know each other
            publisher.publish("site/first", b"first %d" % number, 1)
            number += 1
            await eventually(lambda: bool(witness.arrived), seconds=0.2)
        await absent.stop()
        wanted = {b"%d" % number for number in range(6)}
        for number in range(6):
            publisher.publish("site/load", b"%d" % number, 1 + number % 2)
        assert await eventually(lambda: wanted <= witness.arrived.keys())
        bob.kill()
        bob.start()
        again = LastingClient(bob.mqtt_port, "sub")
        clients.append(again)
        assert await eventually(lambda: wanted <= again.arrived.keys())
        # Alice offers her events of before the restart for five seconds, in digests a second apart.
        await eventually(lambda: any(again.arrived[payload] > 1 for payload in wanted), seconds=2.5)
        assert {payload: again.arrived[payload] for payload in wanted} == dict.fromkeys(wanted, 1)
    finally:
        for client in clients:
            await client.stop()
        alice.kill()
        bob.kill()
