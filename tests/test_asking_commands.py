"""`roamcast request`, `reply`, `query` and `publish --reached` against a node's socket."""

import asyncio
import io
import json
import threading
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.test_client_commands import one_node, serving

from roamcast.cli import app
from roamcast.client import Client, IncomingRequest, Message, blocking, commands
from roamcast.client.connect import NodePlace
from roamcast.errors import InputError
from roamcast.event import Event


def roamcast(words: str, socket: Path) -> Result:
    return CliRunner().invoke(app, [*words.split(), "--socket", str(socket)])


def test_a_command_answers_a_request(tmp_path: Path) -> None:
    with serving(one_node("epidemic"), tmp_path / "s") as socket:
        asked: list[str] = []

        def serve() -> None:
            commands.reply(
                NodePlace(socket),
                lambda request: asked.append(commands.request_line(request)),
                asked.append,
                topic="math/+",
                command='read x; echo "$ROAMCAST_TOPIC: $x"',
                payload=None,
                count=2,
            )

        thread = threading.Thread(target=serve)
        thread.start()
        result = roamcast("request -t math/one -m 1 --memorized --deadline 60", socket)
        assert (result.exit_code, result.stdout) == (0, "math/one: 1\n")
        answer = json.loads(roamcast("request -t math/two -m 2 --deadline 60 --json", socket).stdout)
        assert (answer["node"], answer["text"], answer["attributes"]) == (3, "math/two: 2", {})
        thread.join()
        assert asked == ["math/one 1", "math/two 2"]
        result = roamcast("request -t math/one -m 1 --deadline 0.05", socket)
        assert (result.exit_code, result.stderr) == (1, "roamcast: no answer came within 0.05 s\n")


def test_lines_of_standard_input_answer_requests_one_each_and_then_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(one_node("epidemic"), tmp_path / "s") as socket, blocking.connect(socket) as client:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"yes\r\nno")))
        thread = threading.Thread(
            target=partial(commands.reply, topic="door", command=None, payload=None, count=None),
            args=(NodePlace(socket), lambda _: None, lambda _: None),
        )
        thread.start()
        asking = partial(client.request, topic="door", memorized=True, deadline=60.0)
        assert [[answer.payload for answer in asking()] for _ in range(2)] == [[b"yes"], [b"no"]]
        client.publish(topic="door", attributes={"mqtt.response_topic": "elsewhere"})
        thread.join()


def test_whoever_asks_is_told_that_the_command_failed(tmp_path: Path) -> None:
    with serving(one_node("epidemic"), tmp_path / "s") as socket:
        said: list[str] = []
        serve = partial(commands.reply, topic="door", command="read x; exit $x", payload=None, count=1)
        thread = threading.Thread(target=serve, args=(NodePlace(socket), lambda _: None, said.append))
        thread.start()
        result = roamcast("request -t door -m 3 --memorized --deadline 3", socket)
        assert result.exit_code == 1
        told, ended = result.stderr.splitlines()
        assert told == "roamcast: node-3 (3) answers: the command ended with 3"
        assert ended == "roamcast: no answer came within 3 s"
        assert roamcast("request -t door -m 0 --memorized --deadline 60", socket).exit_code == 0
        thread.join()
        assert said == ["the command ended with 3: read x; exit $x"]


def test_a_command_that_fails_or_takes_too_long_gives_no_answer() -> None:
    async def outputs(command: str, left: float | None) -> bytes | None:
        now = asyncio.get_running_loop().time()
        message = Message(Event(1, 2, payload=b"question"), 0)
        asked = IncomingRequest(Client(), message, None if left is None else now + left)
        return await commands.output_of(command, asked, complaints.append)

    complaints: list[str] = []
    with pytest.raises(commands.CommandFailedError, match="ended with 3"):
        asyncio.run(outputs("cat; exit 3", None))
    assert asyncio.run(outputs("sleep 60", 0.05)) is None
    ended, slow = complaints
    assert ended.startswith("the command ended with 3: cat")
    assert slow.startswith("the command took longer than the request's 0.0")
    assert asyncio.run(outputs("cat", None)) == b"question"


def test_publish_says_who_confirmed_and_query_what_is_memorized(tmp_path: Path) -> None:
    with serving(one_node("epidemic"), tmp_path / "s") as socket:
        result = roamcast("publish -t a -m x --reached 2 --deadline 0.01", socket)
        assert (result.exit_code, result.stdout) == (1, "3:0\n")
        assert result.stderr == "roamcast: reached 0 of 2 nodes within 0.01 s\n"
        result = roamcast("publish -t a --reached-by bob --deadline 0.01", socket)
        assert result.stderr == "roamcast: reached 0 of 1 nodes within 0.01 s, without bob\n"
        for text in ("1", "2"):
            roamcast(f"publish -t site/a -m {text} --lifetime 60", socket)
        assert roamcast("query -t site/# --latest", socket).stdout == "site/a 2\n"
        result = roamcast("query -t site/# --limit 1 --json", socket)
        assert json.loads(result.stdout)["text"] == "2"
        assert (result.exit_code, result.stderr) == (0, "roamcast: 1 of 2 events, the newest\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("publish -t a --reached 1 --reached-by b", "--reached and --reached-by: give one of them"),
        ("publish -t a -l --reached 1", "--lines and --reached: give one of them"),
        ("query", "say what is wanted"),
        ("query -t a/#/b", "'#' must be a level of its own"),
        ("request -t a/+", "wildcards"),
        ("reply -t a -c b -m c", "--command and --payload: give one of them"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, words: str, line: str) -> None:
    result = roamcast(words, tmp_path / "nobody")
    assert result.exit_code == 2
    assert line in result.stderr and result.stderr.count("\n") == 1


def test_a_reply_topic_that_is_no_filter_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="level of its own"):
        commands.reply(
            NodePlace(tmp_path / "nobody"),
            lambda _: None,
            lambda _: None,
            topic="a/b#",
            command=None,
            payload="x",
            count=None,
        )
