"""What `roamcast request`, `roamcast reply`, `roamcast query` and `roamcast publish --reached` do."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Unpack

import msgspec

from roamcast.client.asking import Answer, IncomingRequest, QueryResult, Reached
from roamcast.client.client import filter_from
from roamcast.client.commands import content_of, printable, shown_attributes
from roamcast.client.place import NodePlace
from roamcast.client.publication import PublicationKeywords, publication
from roamcast.errors import InputError
from roamcast.units import NodeId
from roamcast.wire.exchange import FLAGS

COMMAND_SECONDS = 60.0  # for a command that answers a request without a deadline; chosen by us


def publish_reached(
    place: NodePlace, reached: int | tuple[NodeId | str, ...], deadline: float, keywords: PublicationKeywords
) -> Reached:
    publication(**keywords)  # `EventError` before anything is sent

    async def once() -> Reached:
        async with place.connect("roamcast publish") as client:
            return await client.publish(reached=reached, deadline=deadline, **keywords)

    return asyncio.run(once())


def reached_line(reached: Reached, wanted: int, deadline: float) -> str:
    """For people: who confirmed, and when; who did not."""
    confirmed = ", ".join(f"{one.name or one.node} after {one.after:.2f} s" for one in reached.receipts)
    if reached.is_complete:
        return f"reached {confirmed}"
    missing = f", without {', '.join(reached.missing)}" if reached.missing else ""
    head = f"reached {len(reached.receipts)} of {wanted} nodes within {deadline:g} s{missing}"
    return f"{head}: {confirmed}" if confirmed else head


def request(
    place: NodePlace,
    show: Callable[[Answer], None],
    *,
    deadline: float,
    answers: int,
    memorized: bool,
    **keywords: Unpack[PublicationKeywords],
) -> int:
    """How many answers came. `answers` 0: as many as come until the deadline."""
    publication(**keywords)

    async def ask() -> int:
        came = 0
        async with place.connect("roamcast request") as client:
            async for answer in client.request(
                deadline=deadline, answers=answers or None, memorized=memorized, **keywords
            ):
                show(answer)
                came += 1
        return came

    return asyncio.run(ask())


def reply(
    place: NodePlace,
    show: Callable[[IncomingRequest], None],
    complain: Callable[[str], None],
    *,
    topic: str,
    command: str | None,
    payload: str | None,
    count: int | None,
) -> None:
    """Answer requests one after the other: by a command, by a text, or by the lines of standard input. Ends
    after so many answers, or with the lines."""
    if command is not None and payload is not None:
        raise InputError("--command and --payload", "give one of them")
    filter_from(topic=topic)  # `FilterError` before anything is sent
    lines = iter(sys.stdin.buffer)

    async def serve() -> None:
        answered = 0
        async with place.connect("roamcast reply") as client:
            async for asked in client.requests(topic):
                if _is_late(asked):
                    continue  # it waited here while others were answered
                show(asked)
                if command is not None:
                    answer = await _output(command, asked, complain)
                elif payload is not None:
                    answer = payload.encode()
                else:
                    answer = await asyncio.to_thread(_next_line, lines)
                    if answer is None:
                        return
                if answer is None:
                    continue
                await asked.reply(answer)
                answered += 1
                if answered == count:
                    return

    asyncio.run(serve())


def query(
    place: NodePlace,
    *,
    topic: str | None,
    sql: str | None,
    type: str | None,
    xpath: str | None,
    latest: bool,
    limit: int,
    deadline: float,
) -> QueryResult:
    wanted = filter_from(topic=topic, sql=sql, type=type, xpath=xpath)

    async def ask() -> QueryResult:
        async with place.connect("roamcast query") as client:
            return await client.query(wanted=wanted, latest=latest, limit=limit, deadline=deadline)

    return asyncio.run(ask())


def answer_line(answer: Answer) -> str:
    return printable(answer.payload)


def request_line(request: IncomingRequest) -> str:
    return f"{request.topic} {printable(request.payload)}".rstrip()


def answer_json(answer: Answer) -> str:
    event = answer.event
    fields: dict[str, object] = {
        "node": answer.node,
        "hops": answer.hops,
        "after": round(answer.after, 6),
        "attributes": {
            name: value for name, value in shown_attributes(event).items() if not name.startswith(FLAGS)
        },
        **content_of(event),
    }
    return msgspec.json.encode(fields).decode()


def _is_late(asked: IncomingRequest) -> bool:
    return asked.expires_at is not None and asyncio.get_running_loop().time() >= asked.expires_at


async def _output(command: str, asked: IncomingRequest, complain: Callable[[str], None]) -> bytes | None:
    """What the command prints for the request, which it has on standard input; None if it fails."""
    left = COMMAND_SECONDS
    if asked.expires_at is not None:
        left = max(0.0, asked.expires_at - asyncio.get_running_loop().time())
    process = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "ROAMCAST_TOPIC": asked.topic},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(left):
            output, _ = await process.communicate(asked.payload)
    except TimeoutError:
        complain(f"the command took longer than the request's {left:.3g} s: {command}")
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        complain(f"the command ended with {process.returncode}, no answer is sent: {command}")
        return None
    return output.removesuffix(b"\n")


def _next_line(lines: Iterator[bytes]) -> bytes | None:
    line = next(lines, None)
    return None if line is None else line.rstrip(b"\r\n")
