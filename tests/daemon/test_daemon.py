"""The program itself: starts, serves, stops, and says in one line why it cannot."""

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from roamcast.cli import app
from roamcast.daemon import Daemon, run
from roamcast.daemon.config import MetricsSettings
from roamcast.daemon.fresh import write_fresh
from roamcast.daemon.run import metrics_server
from roamcast.errors import InputError
from roamcast.gateway.web.server import REQUEST_BYTES_MAX
from roamcast.runtime.live.report.counters import Counters
from roamcast.sealing import GroupKey

pytestmark = pytest.mark.realtime

SECONDS = 60


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = write_fresh(tmp_path / "alice.toml", interface="lo")
    path.write_text(path.read_text().replace("# port = 4747", f"port = {free_port()}"))
    return path


@pytest.fixture(autouse=True)
def own_log_lines() -> Iterator[None]:
    """The program sets its log lines up; the next test shall not find them."""
    root = logging.getLogger("roamcast")
    before = (root.handlers, root.level, root.propagate)
    yield
    root.handlers, root.level, root.propagate = before


@contextmanager
def program(config: Path) -> Iterator["subprocess.Popen[str]"]:
    started = subprocess.Popen(
        [sys.executable, "-m", "roamcast", "node", str(config)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=config.parent,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def line_of(started: "subprocess.Popen[str]", word: str) -> str:
    assert started.stderr is not None
    for line in started.stderr:
        if word in line:
            return line
    raise AssertionError(f"no line with {word!r}")


def refusal(config: Path) -> str:
    """The one line of a node that does not start."""
    ended = CliRunner().invoke(app, ["node", str(config)])
    assert ended.exit_code == 2, ended.output
    lines = [line for line in ended.stderr.strip().splitlines() if " INFO " not in line]
    assert len(lines) == 1, lines
    return lines[0]


def test_it_starts_and_stops_cleanly_and_its_storage_has_one_user(config: Path) -> None:
    with program(config) as started:
        line_of(started, "alice is node")
        assert refusal(config).endswith("alice.db: is in use by another node process")
        started.send_signal(signal.SIGTERM)
        out, error = started.communicate(timeout=SECONDS)
        assert started.returncode == 0
        assert "alice has stopped" in error and "Traceback" not in error
        assert out == ""
    assert not (config.parent / "alice.sock").exists()


def test_an_interrupt_is_a_clean_stop_too(config: Path) -> None:
    def interrupt(daemon: Daemon) -> None:
        signal.raise_signal(signal.SIGINT)

    run(config, interrupt)
    assert not (config.parent / "alice.sock").exists()


def test_a_hangup_reads_the_group_keys_anew_and_a_wrong_file_changes_nothing(config: Path) -> None:
    new = GroupKey.generate()
    text = config.read_text()
    seen: list[int] = []

    def rotate(daemon: Daemon) -> None:
        sealer = daemon.node.radio._sealer
        config.write_text(text.replace('group = ["', f'group = ["{new.to_text()}", "'))
        daemon.reload_keys(config)
        seen.append(sealer.ring.sending.id)
        seen.append(len(sealer.ring.by_id))
        config.write_text(text.replace('group = ["group:', 'group = ["'))
        daemon.reload_keys(config)
        seen.append(sealer.ring.sending.id)
        signal.raise_signal(signal.SIGTERM)

    run(config, rotate)
    assert seen == [new.id, 2, new.id]


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            'interface = "lo"',
            'address = "10.255.255.254"',
            "air.address: is '10.255.255.254', which no interfa",
        ),
        (
            "# [log]",
            '[metrics]\nlisten = "127.0.0.1:{taken}"\n#',
            "metrics.listen: cannot listen on 127.0.0.1, port {taken}",
        ),
        ("# own_port = 4748", "own_port = {taken} #", "air.own_port: is {taken}, which another program uses"),
        ('state = "alice.db"', 'state = "no/such/folder.db"', "folder.db: cannot be written"),
        ("[clients]", '[trace]\nfolder = "/dev/null/trace"\n[clients]', "trace.folder: "),
        ('socket = "alice.sock"', 'socket = "no/such/alice.sock"', "alice.sock: no socket can be made here"),
        ('identity = "ed25519:', 'identity = "', "keys.identity: must begin with 'ed25519:'"),
    ],
    ids=["address", "metrics", "own port", "state", "trace", "socket", "key"],
)
def test_what_cannot_be_opened_is_one_line_and_exit_code_2(
    config: Path, before: str, after: str, problem: str
) -> None:
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = config.read_text()
        assert before in text
        config.write_text(text.replace(before, after.replace("{taken}", port), 1))
        assert problem.replace("{taken}", port) in refusal(config)


def test_options_of_init_without_init_are_refused(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["node", str(tmp_path / "a.toml"), "--interface", "lo"])
    assert ended.exit_code == 2
    assert "--interface: is given without --init" in ended.stderr


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


def test_the_metrics_endpoint_answers_prometheus_and_refuses_the_rest() -> None:
    async def play() -> None:
        counters = Counters()
        counters.count("frames_sent_total", 3, kind="data")
        counters.gauge("peers", lambda: 2)
        endpoint = metrics_server(counters, MetricsSettings(listen="127.0.0.1:0"))
        await endpoint.start()
        try:
            answer = await ask(endpoint.port, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK") and b"text/plain; version=0.0.4" in head
            assert body.decode() == (
                "# HELP roamcast_frames_sent_total Frames handed to the kernel, by kind and layer.\n"
                "# TYPE roamcast_frames_sent_total counter\n"
                'roamcast_frames_sent_total{kind="data"} 3\n'
                "# HELP roamcast_peers Nodes in the address book: heard within ten minutes.\n"
                "# TYPE roamcast_peers gauge\n"
                "roamcast_peers 2\n"
            )
            for request, status in (
                (b"GET / HTTP/1.1\r\n\r\n", b"404"),
                (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
                (b"nonsense\r\n\r\n", b"400"),
                (b"x" * 2 * REQUEST_BYTES_MAX, b"431"),
            ):
                assert (await ask(endpoint.port, request)).split(b" ")[1] == status
        finally:
            await endpoint.stop()

    asyncio.run(play())


def test_a_metrics_port_in_use_is_the_users_fault() -> None:
    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            endpoint = metrics_server(Counters(), MetricsSettings(listen=f"127.0.0.1:{port}"))
            with pytest.raises(InputError, match=r"metrics\.listen: .*in use"):
                await endpoint.start()

    asyncio.run(play())
