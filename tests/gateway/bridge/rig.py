"""A broker, an uplink that can be cut for each node, and nodes of one bridge. mosquitto is the broker."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections import Counter
from pathlib import Path

from tests.daemon.programs import NodeProgram, connected, free_port, network_on_loopback
from tests.gateway.mqtt.lasting import LastingClient, eventually

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


class Mosquitto:
    def __init__(self, folder: Path) -> None:
        self.port = free_port(socket.SOCK_STREAM)
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
            f"persistence true\npersistence_location {folder}/\nuser root\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        assert MOSQUITTO is not None
        self._process = subprocess.Popen(
            [MOSQUITTO, "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, writer = await connected(self.port)
        writer.close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


class CuttableUplink:
    """A port that leads to the broker while it is up."""

    def __init__(self, to: int) -> None:
        self._to = to
        self.port = free_port(socket.SOCK_STREAM)
        self.opened = 0  # connections so far
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def is_used(self) -> bool:
        return bool(self._writers)

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", self.port)

    async def down(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            away, onward = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self.opened += 1
        self._writers |= {writer, onward}
        try:
            await asyncio.gather(_copy(reader, onward), _copy(away, writer))
        finally:
            self._writers -= {writer, onward}
            for one in (writer, onward):
                one.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


class BridgeRig:
    """alice has the applications; bob and carol have uplinks."""

    def __init__(self, folder: Path) -> None:
        self.broker = Mosquitto(folder)
        self.uplinks = [CuttableUplink(self.broker.port) for _ in range(2)]
        self.nodes: list[NodeProgram] = network_on_loopback(
            folder, "alice", "bob", "carol", mqtt='qos1 = "memorized"'
        )
        for node, uplink in zip(self.nodes[1:], self.uplinks, strict=True):
            node.add(
                f'[bridge]\nname = "home"\nhost = "127.0.0.1"\nport = {uplink.port}\n'
                'up = ["report/#", "both/#"]\ndown = ["command/#", "both/#"]\nkeep_alive = 5'
            )
        self.clients: list[LastingClient] = []

    async def start(self) -> None:
        await self.broker.start()
        for uplink in self.uplinks:
            await uplink.up()
        for node in self.nodes:
            node.start()
        self.home = LastingClient(self.broker.port, "home", subscribe="report/#")
        self.headquarters = LastingClient(self.broker.port, "headquarters", subscribe="both/#")
        self.field = LastingClient(self.nodes[0].mqtt_port, "field", subscribe="command/#")
        self.echo = LastingClient(self.nodes[0].mqtt_port, "echo", subscribe="both/#")
        self.clients = [self.home, self.headquarters, self.field, self.echo]
        for client in self.clients:
            await client.settled.wait()
        number = 0
        while not (self.home.arrived and self.field.arrived):  # both ways stand
            self.field.publish("report/first", b"first %d" % number, 1)
            self.home.publish("command/first", b"first %d" % number, 1)
            number += 1
            await eventually(lambda: bool(self.home.arrived and self.field.arrived), 0.3)

    async def stop(self) -> None:
        for client in self.clients:
            await client.stop()
        for node in self.nodes:
            node.kill()
        for uplink in self.uplinks:
            await uplink.down()
        self.broker.stop()
        await asyncio.sleep(0.1)  # for the loop to close what was aborted


async def flow(rig: BridgeRig, events: int, cuts: int, every: float) -> tuple[Counter[bytes], Counter[bytes]]:
    """So many each way, while the uplink in use is cut, moves, and is restored: what arrived, up and down."""
    pace = max(1, events // (2 * cuts + 1))
    cut: CuttableUplink | None = None
    for number in range(events):
        rig.field.publish("report/load", b"up %d" % number, 1 + number % 2)
        rig.home.publish("command/load", b"down %d" % number, 1 + number % 2)
        while rig.field.unacknowledged > 80 or rig.home.unacknowledged > 80:
            await asyncio.sleep(0.005)
        if number % pace == pace - 1:
            if cut is not None:
                # A busy machine may need longer until the other node has taken over.
                await eventually(lambda: any(uplink.is_used for uplink in rig.uplinks))
                await cut.up()
                cut = None
            else:
                used = [uplink for uplink in rig.uplinks if uplink.is_used]
                if used:
                    cut = used[0]
                    await cut.down()
        await asyncio.sleep(every)
    if cut is not None:
        await cut.up()
    wanted_up = {b"up %d" % number for number in range(events)}
    wanted_down = {b"down %d" % number for number in range(events)}
    await eventually(lambda: wanted_up <= rig.home.arrived.keys(), 180.0)
    await eventually(lambda: wanted_down <= rig.field.arrived.keys(), 180.0)
    await asyncio.sleep(3.0)  # for what might come twice
    return rig.home.arrived, rig.field.arrived


def lost_and_doubled(arrived: Counter[bytes], word: bytes, events: int) -> tuple[int, int]:
    wanted = {b"%b %d" % (word, number) for number in range(events)}
    return len(wanted - arrived.keys()), sum(count - 1 for key, count in arrived.items() if key in wanted)
