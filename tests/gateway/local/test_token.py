"""Programs without Unix sockets: the token file, the port of the loopback, and systems that lack the rest."""

import asyncio
import secrets
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.daemon.programs import free_port, network_on_loopback
from tests.runtime.live.nodes import running, settings

from roamcast.client import ClientError, connect
from roamcast.errors import InputError, WireError
from roamcast.gateway.local import LocalServer
from roamcast.gateway.options import LocalOptions
from roamcast.wire.local import NONCE_BYTES, PROOF_BYTES, AccessToken

pytestmark = pytest.mark.realtime

ELSEWHERE = """
import asyncio, socket, sys
import click.testing

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "pwd", "grp", "resource", "termios"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("fcntl", "pwd", "grp", "resource", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
pair, family = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda *ignored: pair(family)  # what asyncio of this system needs for itself
del socket.AF_UNIX
asyncio.unix_events._UnixSelectorEventLoop.create_unix_connection = None
from roamcast import client
from roamcast.client import blocking
from roamcast.cli import app

def run(*arguments):
    ended = click.testing.CliRunner().invoke(app, arguments)
    print("exit", ended.exit_code, ended.output)

token = sys.argv[1]
run("publish", "-t", "alarm/fire", "-m", "smoke", "--lifetime", "60", "--socket", token, "--wait", "60")
run("subscribe", "-t", "alarm/#", "-C", "1", "--socket", token)
run("status", "--socket", token)
run("publish", "-t", "alarm/fire", "--socket", "no.sock", "--wait", "0")
run("key", "invite", "alice.toml")
sys.platform = "win32"
run("node", "alice.toml")
with blocking.connect(token) as alice:
    print("blocking", alice.status().name)
"""


def test_a_client_that_has_neither_unix_sockets_nor_linux_modules_uses_a_node(tmp_path: Path) -> None:
    (alice,) = network_on_loopback(tmp_path, "alice")
    text = alice.config.read_text()
    alice.config.write_text(text.replace("[clients]\n", "[clients]\nport = 0\n"))
    alice.start()
    try:
        ended = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, str(alice.config.with_suffix(".token"))],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
    finally:
        alice.kill()
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout
    assert "exit 0 alarm/fire smoke" in said
    assert "exit 0" in said and "node          alice, number" in said
    assert "no.sock: is no token file of a node, and this system has no Unix sockets" in said
    assert "exit 2 roamcast: key runs on Linux only" in said
    assert "exit 2 roamcast: roamcast node: runs on Linux only" in said
    assert said.endswith("blocking alice\n")


def test_only_who_knows_the_token_is_served(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(settings(1, port=free_port())) as (node,):
            server = LocalServer(node, LocalOptions(socket=str(tmp_path / "a.sock"), port=0))
            await server.start()
            path = tmp_path / "a.token"
            assert path.stat().st_mode & 0o777 == 0o600
            token = AccessToken.from_text(path.read_text())
            async with connect(path) as client:
                assert client.node == 1
                false = tmp_path / "false.token"
                false.write_text(token._replace(secret=bytes(32)).to_text())
                with pytest.raises(ClientError, match="is not this node"):
                    async with connect(false):
                        pass
                reader, writer = await asyncio.open_connection("127.0.0.1", token.port)
                writer.write(secrets.token_bytes(NONCE_BYTES + PROOF_BYTES) + b"hello")
                await reader.readexactly(NONCE_BYTES + PROOF_BYTES)
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
                with suppress(ConnectionResetError):
                    await writer.wait_closed()
                assert len(server.clients) == 1
            await server.stop()
            assert not path.exists()

    asyncio.run(test())


class Impostor(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(secrets.token_bytes(NONCE_BYTES + PROOF_BYTES))
        transport.close()


def test_a_program_that_took_the_port_is_not_taken_for_the_node(tmp_path: Path) -> None:
    async def test() -> None:
        impostor = await asyncio.get_running_loop().create_server(Impostor, "127.0.0.1", 0)
        port = impostor.sockets[0].getsockname()[1]
        path = tmp_path / "a.token"
        path.write_text(AccessToken(port, bytes(32)).to_text())
        with pytest.raises(ClientError, match="is not this node"):
            async with connect(path):
                pass
        impostor.close()

    asyncio.run(test())


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(settings(1, port=free_port())) as (node,):
            with socket.socket() as other:
                other.bind(("127.0.0.1", 0))
                other.listen()
                port = other.getsockname()[1]
                server = LocalServer(node, LocalOptions(socket=str(tmp_path / "a.sock"), port=port))
                with pytest.raises(InputError, match=f"clients.port: is {port}, which another program uses"):
                    await server.start()
                await server.stop()

    asyncio.run(test())


@pytest.mark.parametrize(
    "text",
    ["", "roamcast-token", "roamcast-token 0 " + "00" * 32, "roamcast-token 80 00", "x 80 " + "00" * 32],
)
def test_what_is_no_token_file_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(WireError):
        AccessToken.from_text(text)
    path = tmp_path / "a.token"
    path.write_text(text)

    async def test() -> None:
        with pytest.raises(ClientError, match="is neither a node's socket nor the token file of one"):
            async with connect(path):
                pass

    asyncio.run(test())
