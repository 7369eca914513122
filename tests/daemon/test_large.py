"""A large payload from the command line of one node to that of another, and through a restart."""

import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from tests.daemon.programs import STARTED_WITHIN, network_on_loopback

from roamcast.client import Client, connect

pytestmark = pytest.mark.realtime

SIZE = 1_200_000
CHUNKS = 293


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "roamcast", *words, "--wait", str(STARTED_WITHIN)]


def test_a_file_goes_from_one_node_to_a_file_at_another(tmp_path: Path) -> None:
    alice, bob = network_on_loopback(tmp_path, "alice", "bob")
    large = tmp_path / "map.bin"
    large.write_bytes(Random(1).randbytes(400_000))
    subscribed = command("subscribe", "-t", "maps/#", "-o", str(tmp_path / "got"), "-C", "1")
    try:
        alice.start()
        bob.start()
        publish = command("publish", "--socket", str(alice.socket), "-t", "maps/../area.bin")
        with subprocess.Popen(
            [*subscribed, "--socket", str(bob.socket)], stdout=subprocess.PIPE, text=True
        ) as subscriber:
            # Memorized: the two nodes may not know each other yet.
            done = subprocess.run(
                [*publish, "-f", str(large), "--lifetime", "300"], capture_output=True, text=True, check=True
            )
            line, _ = subscriber.communicate(timeout=STARTED_WITHIN)
        event = done.stdout.strip()
        (written,) = (tmp_path / "got").iterdir()
        assert written.name == f"{event.replace(':', '-')}-area.bin"
        assert written.read_bytes() == large.read_bytes()
        assert line == f"maps/../area.bin {written}\n"
        large.write_bytes(bytes(16 * 1024 * 1024 + 1))
        refused = subprocess.run([*publish, "-f", str(large)], capture_output=True, text=True)
        assert refused.returncode == 2 and "has more than 16777216 octets" in refused.stderr
    finally:
        alice.kill()
        bob.kill()


def test_a_killed_receiver_goes_on_with_what_its_disk_has(tmp_path: Path) -> None:
    alice, bob = network_on_loopback(tmp_path, "alice", "bob")
    payload = Random(2).randbytes(SIZE)

    async def stored(client: Client) -> int:
        return (await client.status()).events_stored

    async def met(client: Client) -> None:
        while not (await client.status()).peers_total:
            await asyncio.sleep(0.05)

    async def test() -> None:
        async with connect(alice.socket, wait=STARTED_WITHIN) as publisher:
            async with connect(bob.socket, wait=STARTED_WITHIN) as receiver:
                await met(publisher)
                await met(receiver)
                publishing = asyncio.ensure_future(
                    publisher.publish(topic="map", payload=payload, lifetime=600.0)
                )
                while await stored(receiver) < 200:
                    await asyncio.sleep(0.01)
                bob.kill()
            bob.start()
            async with (
                connect(bob.socket, wait=STARTED_WITHIN) as receiver,
                receiver.subscribe(topic="map") as maps,
            ):
                message = await maps.next(STARTED_WITHIN)
                assert message.event.id == await publishing and message.event.payload == payload
                assert await stored(receiver) == CHUNKS
                (peer,) = (await receiver.status()).peers
                assert peer.bytes_received < 0.9 * SIZE  # not from the beginning

    try:
        alice.start()
        bob.start()
        asyncio.run(asyncio.wait_for(test(), 3 * STARTED_WITHIN))
    finally:
        alice.kill()
        bob.kill()
