"""Requests, receipts and queries of clients of one node: over the socket, blocking, with rights."""

import asyncio
import os
import pwd
import threading
from pathlib import Path

import pytest
from tests.gateway.local.test_local import run, served
from tests.gateway.mqtt.stand_alone import StandingNode

from roamcast.client import Client, ClientError, blocking, connect
from roamcast.errors import InputError
from roamcast.event import Publication
from roamcast.exchange import exchanges
from roamcast.filter import Filter
from roamcast.gateway.access import TopicRights
from roamcast.gateway.local import LocalServer, LocalSession, client_of, session
from roamcast.gateway.options import LocalOptions
from roamcast.wire.exchange import RESPONSE_TOPIC
from roamcast.wire.local import (
    AskRequest,
    ClientHello,
    Done,
    EndRequest,
    Failed,
    NodeMessage,
    Over,
    QueryRequest,
)

LONG = 60.0  # seconds; no test waits for it
ME = pwd.getpwuid(os.getuid()).pw_name


async def until(condition: object) -> None:
    assert callable(condition)
    while not condition():
        await asyncio.sleep(0.001)


async def doubling(client: Client, ready: asyncio.Event | None = None) -> None:
    """Answers requests on `math/double`, until it is cancelled."""
    async with client.subscribe(topic="math/ready") as started:
        asking = client.requests("math/double")
        task = asyncio.ensure_future(anext(asking))
        await client.publish(topic="math/ready")
        await started.next(LONG)
        if ready is not None:
            ready.set()
        while True:
            request = await task
            await request.reply(str(2 * int(request.payload)), {"hops": request.hops})
            task = asyncio.ensure_future(anext(asking))


def test_two_programs_answer_a_third_one(tmp_path: Path) -> None:
    async def test() -> None:
        node = StandingNode()
        async with (
            served(tmp_path / "s", node),
            connect(tmp_path / "s") as one,
            connect(tmp_path / "s") as other,
            connect(tmp_path / "s") as asking,
        ):
            tasks = []
            for client in (one, other):
                ready = asyncio.Event()
                tasks.append(asyncio.ensure_future(doubling(client, ready)))
                await ready.wait()
            came = [
                answer
                async for answer in asking.request(
                    topic="math/double", payload="21", answers=2, deadline=LONG
                )
            ]
            assert [(each.payload, each.node, each.hops) for each in came] == [(b"42", 7, 0)] * 2
            assert came[0].event.attributes["hops"] == 0
            async for answer in asking.request(topic="math/double", payload="4", deadline=LONG, answers=None):
                assert answer.payload == b"8"
                break  # the node hears that nobody waits any more
            await until(lambda: node.exchanges.inquiries == 0)
            assert await asking.publish(topic="math/ready")  # and the connection goes on
            for task in tasks:
                task.cancel()

    run(test())


def test_a_request_that_nobody_answers_ends_at_its_deadline_and_one_whose_node_stops_fails(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with served(tmp_path / "s") as server, connect(tmp_path / "s") as client:
            assert [one async for one in client.request(topic="who", deadline=0.01)] == []
            waiting = client.request(topic="who", deadline=LONG)
            task = asyncio.ensure_future(anext(waiting))
            await until(lambda: client._asked)
            await server.stop()
            with pytest.raises(ClientError, match="closed"):
                await task

    run(test())


def test_who_did_not_confirm_is_named() -> None:
    async def test() -> None:
        async with await client_of(StandingNode()) as client:
            result = await client.publish(topic="a", reached=2, deadline=0.01)
            assert (result.event.publisher, result.receipts, result.missing) == (7, (), ())
            assert not result.is_complete
            result = await client.publish(topic="a", reached=["bob", 9, 9], deadline=0.01)
            assert (result.missing, result.is_complete) == (("bob", "9"), False)
            with pytest.raises(InputError, match="names no node"):
                await client.publish(topic="a", reached=[])

    run(test())


@pytest.mark.parametrize("deadline", [-1.0, 0.0, float("nan"), float("inf"), 1e8])
def test_an_absurd_deadline_is_refused_with_the_reason(deadline: float) -> None:
    async def test() -> None:
        async with await client_of(StandingNode()) as client:
            with pytest.raises((ClientError, InputError), match=r"deadline: is .*allowed: "):
                await client.publish(topic="a", reached=1, deadline=deadline)
            with pytest.raises((ClientError, InputError), match=r"deadline: is .*allowed: "):
                [one async for one in client.request(topic="a", deadline=deadline)]
            if deadline:
                with pytest.raises((ClientError, InputError), match=r"deadline: is .*allowed: "):
                    await client.query("#", deadline=deadline)
            with pytest.raises(ClientError, match="limit: is 10001"):
                await client.query("#", limit=10_001)
            await client.publish(topic="a")

    run(test())


def test_a_program_without_asyncio_asks_answers_and_queries(tmp_path: Path) -> None:
    path, stop = tmp_path / "s", threading.Event()
    ready = threading.Event()

    async def serve() -> None:
        async with served(path):
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait(LONG)
    try:
        with blocking.connect(path) as asking, blocking.connect(path) as answering:

            def answer() -> None:
                for request in answering.requests("door/open"):
                    request.reply(b"no: " + request.payload)
                    break

            answerer = threading.Thread(target=answer)
            answerer.start()
            came: list[bytes] = []
            while not came:  # until the subscription stands
                came = [one.payload for one in asking.request(topic="door/open", payload="ann", deadline=0.2)]
            answerer.join()
            assert came == [b"no: ann"]
            asking.publish(topic="site/a", payload="1", lifetime=LONG)
            asking.publish(topic="site/a", payload="2", lifetime=LONG)
            found = answering.query("site/#", latest=True)
            assert [message.event.payload for message in found.messages] == [b"2"] and not found.cut
            assert asking.query("site/#", limit=1).cut
            assert not asking.publish(topic="a", reached=1, deadline=0.01).is_complete
    finally:
        stop.set()
        thread.join()


def test_rights_by_topic_hold_for_requests_replies_and_queries(tmp_path: Path) -> None:
    probe = TopicRights(publish=("sensor/#",), subscribe=("command/#",))

    async def test() -> None:
        node = StandingNode()
        server = LocalServer(node, LocalOptions(socket=str(tmp_path / "s"), rights={ME: probe}))
        await server.start()
        async with await client_of(node) as free, connect(tmp_path / "s") as client:
            with pytest.raises(ClientError, match="may not publish"):
                [one async for one in client.request(topic="command/7")]
            with pytest.raises(ClientError, match="may not publish"):
                await client.publish(topic="command/7", reached=1)
            await free.publish(topic="command/1", lifetime=LONG)
            await free.publish(topic="secret/1", lifetime=LONG)
            found = await client.query("#")
            assert [message.event.topic for message in found.messages] == ["command/1"]
            assert (await client.query("secret/#")).found == 0
            asked = client.requests("command/2")
            task = asyncio.ensure_future(anext(asked))
            await until(lambda: node.applications.node.broker.has_subscriptions)
            answers = asyncio.ensure_future(anext(free.request(topic="command/2", deadline=LONG)))
            with pytest.raises(ClientError, match=r"is '\$reply/7/.*may not publish; allowed: sensor/#"):
                await (await task).reply("no")
            answers.cancel()
        await server.stop()

    run(test())


def test_open_requests_of_a_client_are_bounded_and_their_numbers_are_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        monkeypatch.setattr(session, "ASKED_MAX", 2)
        said: list[NodeMessage] = []
        node = StandingNode()
        local = LocalSession(node, said.append)
        local.on_message(ClientHello("raw"))
        del said[:]
        wanted = Publication(topic="who")
        local.on_message(AskRequest(1, wanted, 10**6, 5))
        local.on_message(AskRequest(1, wanted, 10**6, 5))
        local.on_message(AskRequest(0, wanted, 10**6, 5))
        local.on_message(AskRequest(2, wanted, 10**15, 5))
        local.on_message(AskRequest(3, wanted, 10**6, 5))
        local.on_message(AskRequest(4, wanted, 10**6, 5))
        problems = [message.problem for message in said if isinstance(message, Failed)]
        assert [problem.split(";")[0] for problem in problems] == [
            "request: has the number 1",
            "request: has the number 0",
            "deadline: is 1e+09 seconds",
            "request: is one too many",
        ]
        local.on_message(EndRequest(5, 1))
        local.on_message(EndRequest(6, 99))  # one that is over already is no error
        monkeypatch.setattr(exchanges, "LIMIT_MAX", 10)
        local.on_message(QueryRequest(7, Filter.everything().encode(), 0, False, 11))
        assert said[-1] == Failed(7, "limit: is 11; allowed: 1 to 10")
        local.on_message(QueryRequest(7, Filter.everything().encode(), 0, False, 10))
        assert [one for one in said if not isinstance(one, Failed)][-4:] == [
            Done(5),
            Done(6),
            Over(7, 0),
            Done(7),
        ]
        local.close()
        assert node.exchanges.inquiries == 0

    run(test())


def test_answers_beyond_what_a_client_reads_are_left_out_like_events(tmp_path: Path) -> None:
    """Whoever asks and does not read must not fill the node's memory."""

    async def test() -> None:
        node = StandingNode()
        async with served(tmp_path / "s", node) as server, connect(tmp_path / "s") as client:
            other = node.applications.open(lambda _: None)
            answers = client.request(topic="who", deadline=LONG, answers=1_000)
            task = asyncio.ensure_future(anext(answers))
            got: list[str] = []
            listener = node.applications.open(
                lambda delivery: got.append(str(delivery.event.attributes[RESPONSE_TOPIC]))
            )
            listener.subscribe(Filter.topic("who"))
            await until(lambda: got)
            (connection,) = server.clients
            for _ in range(300):  # 18 MB, in one turn of the loop
                other.publish(Publication(payload=bytes(60_000), topic=got[0]))
            assert connection.unsent < 5 * 1024 * 1024
            assert isinstance(await task, tuple)
            await answers.aclose()
            await until(lambda: node.exchanges.inquiries == 0)

    run(test())
