"""`roamcast publish` and `roamcast subscribe` against a node's socket."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast.cli import app
from roamcast.client import ClientError, Message, blocking, commands, near
from roamcast.client.commands import parse_attributes
from roamcast.client.connect import NodePlace
from roamcast.errors import InputError
from roamcast.gateway.local import LocalServer
from roamcast.gateway.options import LocalOptions
from roamcast.host import Channel
from roamcast.strategy.odmrp.messages import CODEC, JoinRequest
from roamcast.testing import FakeHost


def one_node(strategy: str) -> StandAloneNode:
    return StandAloneNode(3, strategy=strategy, host=FakeHost)


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    with serving(one_node("epidemic"), tmp_path / "node.sock") as path:
        yield path


@contextmanager
def serving(node: StandAloneNode, path: Path) -> Iterator[Path]:
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        server = LocalServer(node, LocalOptions(socket=str(path)))
        await server.start()
        ready.set()
        await asyncio.to_thread(stop.wait)
        await server.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield path
    stop.set()
    thread.join()


def test_a_subscription_that_has_no_position_yet_says_so_and_ends_in_time(
    socket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(near, "PATIENCE", 0.05)
    place = tmp_path / "place.json"
    place.write_text('{"lat": 147, "lon": 8}')
    words = f"subscribe --near 500 --position {place} --seconds 0.2 --socket {socket}"
    ended = CliRunner().invoke(app, words.split())
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert caplog.messages.count(f"no position from {place} yet; waiting for one") == 1


def test_publish_says_the_event_and_subscribe_shows_what_is_kept(socket: Path) -> None:
    words = "publish --topic alarm/fire --attribute level=5 --attribute place=mill --payload smoke"
    published = CliRunner().invoke(app, [*words.split(), "--lifetime", "60", "--socket", str(socket)])
    assert (published.exit_code, published.stdout) == (0, "3:0\n")
    words = "subscribe --topic alarm/# --sql level>3 --count 1"
    shown = CliRunner().invoke(app, [*words.split(), "--socket", str(socket)])
    assert (shown.exit_code, shown.stdout) == (0, "alarm/fire level=5 place=mill smoke\n")
    as_json = CliRunner().invoke(app, [*words.split(), "--json", "--socket", str(socket)])
    assert json.loads(as_json.stdout) == {
        "publisher": 3,
        "sequence": 0,
        "topic": "alarm/fire",
        "type": "",
        "attributes": {"level": 5, "place": "mill"},
        "class": "memorized",
        "hops": 0,
        "text": "smoke",
    }


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ("publish --attribute level", 2, "NAME=VALUE"),
        ("subscribe", 2, "say what is wanted"),
        ("subscribe --sql level>>3", 2, "level>>3"),
        ("publish --topic a/+", 2, "wildcards"),
    ],
)
def test_what_cannot_be_is_one_line(socket: Path, words: str, code: int, line: str) -> None:
    result = CliRunner().invoke(app, [*words.split(), "--socket", str(socket)])
    assert result.exit_code == code
    assert line in result.stderr and result.stderr.count("\n") == 1


def test_xpath_with_half_a_surrogate_pair_is_one_line(socket: Path) -> None:
    result = CliRunner().invoke(app, ["subscribe", "--xpath", "/a[b = '\udcff']", "--socket", str(socket)])
    assert result.exit_code == 2
    assert "half a surrogate pair" in result.stderr and result.stderr.count("\n") == 1


def test_an_event_of_17_mb_is_one_line_and_is_not_read_to_its_end(socket: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.xml"
    large.write_bytes(b"<a>" + b"x" * 17_000_000 + b"</a>")
    for file, given in ((str(large), None), ("-", large.read_bytes())):
        words = ["publish", "--type", "a", "--file", file, "--socket", str(socket)]
        result = CliRunner().invoke(app, words, input=given)
        assert result.exit_code == 2
        assert "has more than 16777216 octets" in result.stderr and result.stderr.count("\n") == 1


def test_advertise_asks_for_subscribers_while_it_stands(tmp_path: Path) -> None:
    node = one_node("odmrp")
    with serving(node, tmp_path / "node.sock") as path:
        done = CliRunner().invoke(app, ["advertise", "score", "--seconds", "0", "--socket", str(path)])
        assert (done.exit_code, done.stdout) == (0, "advertised score\n")
        (asked,) = node.hosts[Channel.STRATEGY].sent
        request = CODEC.decode(asked.frame.payload)
        assert isinstance(request, JoinRequest) and len(request.advertisements) == 1
        with blocking.connect(path) as client:
            client.advertise("score")
            client.withdraw("score")
            with pytest.raises(ClientError, match="'score': is not there to be withdrawn; allowed: none"):
                client.withdraw("score")
    with pytest.raises(InputError, match="is not there to be withdrawn"):
        node.node.withdraw("score")


def test_advertise_with_a_strategy_that_takes_none_is_one_line(socket: Path) -> None:
    result = CliRunner().invoke(app, ["advertise", "score", "--socket", str(socket)])
    assert result.exit_code == 1
    assert "takes none; allowed: odmrp" in result.stderr and result.stderr.count("\n") == 1


def test_no_node_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["publish", "--topic", "a", "--wait", "0", "--socket", str(tmp_path / "none")]
    )
    assert result.exit_code == 1
    assert "no node answers here" in result.stderr and result.stderr.count("\n") == 1


def test_attributes_are_json_where_they_can_be() -> None:
    texts = ["a=5", "b=2.5", "c=true", 'd="5"', "e=fire", "f=null", "g=a=b"]
    assert parse_attributes(texts) == {
        "a": 5, "b": 2.5, "c": True, "d": "5", "e": "fire", "f": None, "g": "a=b",
    }  # fmt: skip
    with pytest.raises(InputError, match="NAME=VALUE"):
        parse_attributes(["=5"])


def test_lines_and_json_from_standard_input_become_events_and_json_comes_out(socket: Path) -> None:
    def call(*words: str, typed: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, [*words, "--socket", str(socket)], input=typed)

    lines = call("publish", "-l", "-t", "log", "-a", "level=2", "--lifetime", "60", typed="one\ntwo\n")
    assert (lines.exit_code, lines.stdout) == (0, "3:0\n3:1\n")
    written = call("subscribe", "-t", "log", "-C", "2", "--json").stdout
    assert [json.loads(line)["text"] for line in written.splitlines()] == ["one", "two"]
    objects = written.replace('"log"', '"copy"') + '\n{"topic": "copy", "payload": "AP8="}\n'
    copied = call("publish", "--json", "--lifetime", "60", typed=objects)
    assert copied.stdout.splitlines()[-1] == '{"publisher":3,"sequence":4}'
    back = [
        json.loads(line) for line in call("subscribe", "-t", "copy", "-C", "3", "--json").stdout.splitlines()
    ]
    assert [(one.get("text"), one["attributes"]) for one in back[:2]] == [
        ("one", {"level": 2}),
        ("two", {"level": 2}),
    ]
    assert back[2]["payload"] == "AP8="
    for typed, problem in (
        ('{"topic": "a"}\n{"topic": 5}\n', "line 2: JSON: cannot be read"),
        ('{"topic": "a/#"}', "line 1: topic: "),
        ('{"payload": "%"}', "line 1: payload: is no Base64"),
        ("nonsense", "line 1: JSON: cannot be read"),
    ):
        refused = call("publish", "--json", typed=typed)
        assert refused.exit_code == 2 and problem in refused.stderr, refused.output
    both = call("publish", "-l", "-m", "x")
    assert both.exit_code == 2 and "--lines and --payload: give one of them" in both.stderr


def test_a_command_waits_for_its_node_and_finds_it_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "late.sock"
    monkeypatch.setenv("ROAMCAST_SOCKET", str(path))
    ended: list[Result] = []
    waiting = threading.Thread(
        target=lambda: ended.append(CliRunner().invoke(app, ["publish", "-t", "a", "--wait", "60"]))
    )
    waiting.start()
    with serving(one_node("epidemic"), path):
        waiting.join(60)
    assert ended and ended[0].stdout == "3:0\n"


@pytest.mark.realtime
def test_what_is_sent_to_a_node_by_name_is_shown_by_a_command_there(socket: Path) -> None:
    def call(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--socket", str(socket)])

    listen = "subscribe --addressed -C 1 --socket"
    with subprocess.Popen(
        [sys.executable, "-m", "roamcast", *listen.split(), socket], stdout=subprocess.PIPE, text=True
    ) as listening:
        while listening.poll() is None:  # real-time: for those who listen by now
            assert call("publish", "-t", "team/word", "-m", "come down", "--to", "3").exit_code == 0
            time.sleep(0.1)
        assert listening.communicate()[0] == "team/word come down\n" and listening.returncode == 0
    wrong = call("subscribe", "--addressed", "-t", "#")
    assert wrong.exit_code == 2 and "--addressed: shows all that is sent to this node" in wrong.stderr


def test_a_subscription_ends_after_its_seconds(socket: Path) -> None:
    ended = CliRunner().invoke(app, ["subscribe", "-t", "#", "-W", "0.1", "--socket", str(socket)])
    assert (ended.exit_code, ended.output) == (0, "")


def test_a_subscription_on_a_terminal_waits_for_its_node_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    shown: list[str] = []
    told: list[str] = []

    def show(message: Message) -> None:
        shown.append(commands.to_line(message))
        if shown[-1] == "t after":
            raise InputError("enough", "has come")

    def listen() -> None:
        place = NodePlace(path, 10.0)
        with pytest.raises(InputError, match="enough"):
            commands.subscribe(
                place, show, topic="t", sql=None, type=None, xpath=None, count=None, on_lost=told.append
            )

    thread = threading.Thread(target=listen)
    for payload in ("before", "after"):
        with serving(one_node("epidemic"), path):
            if payload == "before":
                thread.start()
            while thread.is_alive() and f"t {payload}" not in shown:
                CliRunner().invoke(app, ["publish", "-t", "t", "-m", payload, "--socket", str(path)])
    thread.join()
    assert shown[0] == "t before" and shown[-1] == "t after"
    assert told == ["the node closed the connection"]
