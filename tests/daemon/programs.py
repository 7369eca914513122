"""Nodes as programs: files for a network on the loopback, processes that are started and killed."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

from roamcast.daemon.fresh import init

STARTED_WITHIN = 120.0  # seconds; a busy machine is no failure


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


class NodeProgram:
    """`roamcast node` of one file, with an MQTT port."""

    def __init__(self, config: Path, mqtt_port: int) -> None:
        self.config = config
        self.mqtt_port = mqtt_port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.config.with_suffix(".log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "roamcast", "node", str(self.config)],
                cwd=self.config.parent,
                stderr=log,
            )

    def kill(self) -> None:
        """SIGKILL, and nothing of it is left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def add(self, text: str) -> None:
        """To its file."""
        with self.config.open("a") as file:
            file.write(f"\n{text}\n")

    @property
    def log(self) -> str:
        return self.config.with_suffix(".log").read_text()

    @property
    def socket(self) -> Path:
        return self.config.with_suffix(".sock")


def network_on_loopback(folder: Path, *names: str, mqtt: str = "") -> list[NodeProgram]:
    """Files of nodes that hear each other. `mqtt`: further keys of their `[mqtt]`."""
    air = free_port()
    made: list[NodeProgram] = []
    for name in names:
        like = made[0].config if made else None
        config = init(folder / f"{name}.toml", like=like, interface="lo")
        port = free_port(socket.SOCK_STREAM)
        text = config.read_text().replace("# port = 4747", f"port = {air}  #")
        config.write_text(f"{text}\n[mqtt]\nport = {port}\n{mqtt}\n")
        made.append(NodeProgram(config, port))
    return made


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection, as soon as someone listens."""
    async with asyncio.timeout(STARTED_WITHIN):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
