"""`roamcast status` and `roamcast peers`, from the command to what a person reads."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until

from roamcast.cli import app
from roamcast.client.status import duration
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.gateway.local import LocalServer
from roamcast.gateway.options import LocalOptions
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.peers import PEERS_METERED
from roamcast.runtime.live.report.counters import HELP
from roamcast.wire.local import FROM_NODE, StatusAnswer
from roamcast.wire.status import PEERS_SHOWN

pytestmark = pytest.mark.realtime


def said(*arguments: str) -> str:
    ended = CliRunner().invoke(app, list(arguments))
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_a_node_says_what_it_is_whom_it_hears_and_what_is_wrong(tmp_path: Path) -> None:
    async def play() -> None:
        port = free_port()
        alice = settings(3, port=port, state="alice.db", strategy="epidemic")
        async with running(alice, settings(4, port=port, strategy="epidemic"), base=tmp_path) as (one, other):
            server = LocalServer(one, LocalOptions(socket=str(tmp_path / "alice.sock")))
            await server.start()
            try:
                await until(acquainted(one, other))
                await until(lambda: one.node.underlay.neighbours() == [4])
                session = one.applications.open(lambda delivery: None)
                session.subscribe(Filter.sql("level > 3"))
                session.publish(Publication({"level": 5}, lifetime=10**9))
                socket = str(tmp_path / "alice.sock")
                as_json = json.loads(await asyncio.to_thread(said, "status", "--socket", socket, "--json"))
                assert (as_json["number"], as_json["strategy"], as_json["underlay"]) == (
                    3,
                    "epidemic",
                    "beacons",
                )
                assert as_json["group"] == [f"{one.radio.group_key_ids[0]:04x}"]
                assert as_json["interfaces"][0]["port"] == port
                assert as_json["clients"] == {"local": 1}
                assert as_json["subscriptions"] == ["level > 3"]
                stored, delivered = as_json["events_stored"], as_json["events_delivered"]
                assert (as_json["events_published"], delivered, stored) == (1, 1, 1)
                assert as_json["problems"] == []
                (peer,) = as_json["peers"]
                assert (peer["number"], peer["address"], peer["is_neighbour"]) == (4, "127.0.0.1", True)
                assert peer["port"] == other.radio.air.port and peer["bytes_received"] > 0
                await other.stop()
                await until(lambda: one.radio.peers.up == 0)
                one.started_at -= 60_000_000  # it has been alone for long
                text = await asyncio.to_thread(said, "status", "--socket", socket)
                assert text.splitlines()[0].startswith("WARNING: no other node is heard")
                table = await asyncio.to_thread(said, "peers", "--socket", socket)
                assert table.splitlines()[0].split()[:4] == ["peer", "number", "address", "by"]
                row = ["-", "4", f"127.0.0.1:{other.radio.air.port}", "lo"]  # its file gives it no name
                assert table.splitlines()[1].split()[:4] == row
            finally:
                await server.stop()

    asyncio.run(play())


def test_trace_tells_which_way_an_event_went_on_each_node(tmp_path: Path) -> None:
    async def play() -> None:
        port = free_port()
        async with running(settings(1, port=port), settings(2, port=port), base=tmp_path) as (one, other):
            servers = [
                LocalServer(node, LocalOptions(socket=str(tmp_path / f"{node.number}.sock")))
                for node in (one, other)
            ]
            for server in servers:
                await server.start()
            try:
                await until(acquainted(one, other))
                got: list[int] = []
                other.applications.open(lambda delivery: got.append(1)).subscribe(Filter.topic("alarm/#"))
                session = one.applications.open(lambda delivery: None)
                event = session.publish(Publication(topic="alarm/fire")).event
                name = f"{event.publisher}:{event.sequence}"
                await until(lambda: got)

                async def told(number: int, *more: str) -> str:
                    socket = str(tmp_path / f"{number}.sock")
                    return await asyncio.to_thread(said, "trace", *more, "--socket", socket)

                at_publisher = await told(1, name)
                assert "published (topic alarm/fire)" in at_publisher.splitlines()[0]
                assert "sent to everyone (flood, " in at_publisher.splitlines()[1]
                at_subscriber = json.loads(await told(2, name, "--json"))
                steps = [(step["what"], step["peer"]) for step in at_subscriber["steps"]]
                assert steps[:2] == [("arrived", 1), ("delivered", None)]
                lost = ["trace", "1:999999", "--socket", str(tmp_path / "2.sock")]
                ended = await asyncio.to_thread(CliRunner().invoke, app, lost)
                assert ended.exit_code == 1 and "remembers no step of it" in ended.stderr
                ended = await asyncio.to_thread(CliRunner().invoke, app, ["trace", "nonsense"])
                assert (
                    ended.exit_code == 2 and "nonsense: is no event; allowed: node:sequence" in ended.stderr
                )
            finally:
                for server in servers:
                    await server.stop()

    asyncio.run(play())


def test_every_metric_of_a_node_has_its_help_and_type(tmp_path: Path) -> None:
    async def play() -> None:
        port = free_port()
        base = settings(1, port=port, strategy="epidemic", state="a.db")
        async with running(base, settings(2, port=port, strategy="epidemic"), base=tmp_path) as (one, other):
            await until(acquainted(one, other))
            lines = one.counters.to_text().splitlines()
            helped = {line.split()[2] for line in lines if line.startswith("# HELP")}
            typed = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
            assert helped == set(typed)
            assert (
                typed["roamcast_events_published_total"] == "counter"
                and typed["roamcast_peers_up"] == "gauge"
            )
            assert 'roamcast_peer_up{peer="2"} 1' in lines
            assert any(line.startswith('roamcast_build_info{version="') for line in lines)
            assert {name.removeprefix("roamcast_") for name in typed} <= set(HELP)
            for number in range(1_000):
                one.radio.peers.heard(1_000 + number, Endpoint("10.0.0.1", 1, "wlan0"), 1, one.clock.now)
            assert one.counters.to_text().count("roamcast_peer_up{") == PEERS_METERED

    asyncio.run(play())


def test_a_document_of_a_crowd_fits_one_message() -> None:
    async def play() -> None:
        async with running(settings(1, port=free_port())) as (node,):
            session = node.applications.open(lambda delivery: None)
            for number in range(100):
                session.subscribe(Filter.sql(f"a{number} = '{'x' * 500}'"))
            for number in range(2_000):
                node.radio.peers.heard(
                    2**31 - 1 - number, Endpoint("255.255.255.255", 65_535, "wlan0"), 2**40, node.clock.now
                )
            status = node.status()
            assert status.peers_total == 2_000 and len(status.peers) == PEERS_SHOWN
            FROM_NODE.encode(StatusAnswer(2**40, status))  # asserts that it fits

    asyncio.run(play())


def test_without_a_node_there_is_one_line(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["status", "--wait", "0", "--socket", str(tmp_path / "none.sock")])
    assert ended.exit_code == 1
    assert "no node answers here" in ended.stderr and len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.44, "0.4 s"), (11.6, "12 s"), (200, "3 min"), (19_200, "5 h 20 min"), (273_600, "3 d 4 h")],
)
def test_durations_are_for_people(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
