"""What `roamcast publish`, `subscribe`, `advertise`, `request`, `reply`, `query` and `key` do."""

import asyncio
import base64
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from roamcast.client.asking import (
    Answer,
    IncomingRequest,
    PublicationKeywords,
    QueryResult,
    Reached,
    publication,
)
from roamcast.client.client import Client, ClientError, Message, OnProgress, filter_from
from roamcast.client.connect import NodePlace
from roamcast.errors import InputError, RoamcastError
from roamcast.event import COUNT_MAX, LARGE_BYTES_MAX, Event, EventId, Value
from roamcast.units import NodeId
from roamcast.wire.exchange import of_applications

if TYPE_CHECKING:
    from roamcast.modulator import ModulatorSpec


def parse_attributes(texts: Sequence[str]) -> dict[str, Value]:
    """`level=5`, `name=fire`, `name="5"`: JSON where the value is a JSON scalar, else the text itself."""
    attributes: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InputError(f"--attribute {text}", "write it as NAME=VALUE, e.g. level=5")
        try:
            attributes[name] = msgspec.json.decode(value, type=bool | int | float | str | None)
        except msgspec.DecodeError:
            attributes[name] = value
    return attributes


def payload_from(text: str | None, file: Path | None) -> bytes:
    """The payload as given on the command line: a text, a file, or `-` for standard input."""
    if text is not None and file is not None:
        raise InputError("--payload and --file", "give one of them")
    if file is None:
        return (text or "").encode()
    most = LARGE_BYTES_MAX + 1  # enough to see that it is too much, however long the file
    try:
        with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as source:
            octets = source.read(most)
    except OSError as error:
        raise InputError(str(file), f"cannot be read: {error.strerror}") from None
    if len(octets) == most:
        raise InputError(str(file), f"has more than {LARGE_BYTES_MAX} octets, the most that a payload has")
    return octets


def publish(
    place: NodePlace, on_progress: OnProgress | None = None, **keywords: Unpack[PublicationKeywords]
) -> EventId:
    """`EventError` for what is no valid event, before anything is sent."""
    ready = publication(**keywords)
    return place.run("roamcast publish", lambda client: client.send(ready, on_progress))


def publish_each(
    place: NodePlace,
    lines: Iterable[bytes],
    show: Callable[[EventId], None],
    *,
    as_json: bool,
    **keywords: Unpack[PublicationKeywords],
) -> None:
    """One event for each line: the line is its payload, or a JSON object in the form of `to_json`, whose
    fields go before the keywords. A line that is none ends it; those before it have been published."""

    async def each(client: Client) -> None:
        for number, line in enumerate(lines, 1):
            text = line.rstrip(b"\r\n")
            if as_json and not text.strip():
                continue
            try:
                read = _from_json(text) if as_json else PublicationKeywords(payload=text)
                ready = publication(**cast(PublicationKeywords, {**keywords, **read}))
            except InputError as error:
                raise InputError(f"line {number}: {error.where}", error.problem) from None
            show(await client.send(ready))

    place.run("roamcast publish", each)


class JsonEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `subscribe --json`, as far as a publication has it. Other fields are ignored."""

    topic: str | None = None
    type: str | None = None
    attributes: dict[str, Value] | None = None
    text: str | None = None
    payload: str | None = None  # in Base64
    lifetime: float | None = None
    to: list[int] | None = None
    multimode: bool | None = None
    sealed: bool | None = None


def _from_json(line: bytes) -> PublicationKeywords:
    try:
        read = msgspec.json.decode(line, type=JsonEvent)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        allowed = ", ".join(JsonEvent.__struct_fields__)
        raise InputError(
            "JSON", f"cannot be read: {error}; allowed: one object a line, with {allowed}"
        ) from None
    given = {name: value for name, value in msgspec.structs.asdict(read).items() if value is not None}
    text, encoded = given.pop("text", None), given.pop("payload", None)
    if text is not None and encoded is not None:
        raise InputError("text and payload", "are both there; allowed: one of them")
    if encoded is not None:
        try:
            given["payload"] = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise InputError("payload", "is no Base64; allowed: Base64, or `text` instead") from None
    elif text is not None:
        given["payload"] = text
    return cast(PublicationKeywords, given)


def subscribe(
    place: NodePlace,
    show: Callable[[Message], None],
    *,
    topic: str | None,
    sql: str | None,
    type: str | None,
    xpath: str | None,
    count: int | None,
    seconds: float | None = None,
    modulator: str | None = None,
    parameters: str = "{}",
    on_lost: Callable[[str], None] | None = None,
    near: float | None = None,
    position: str | None = None,
    addressed: bool = False,
) -> None:
    """Show each message as it comes, or with `addressed` each that is sent to this node by name; ends after
    `count` messages or `seconds`, or when the node stops. With `on_lost`, which is told when it stops, it
    waits for the node and goes on."""
    if near is None and position is not None:
        raise InputError("--position", "is for --near")
    given: dict[str, Any] = {"topic": topic, "sql": sql, "type": type, "xpath": xpath}
    if addressed and any(one is not None for one in (*given.values(), near, modulator)):
        raise InputError("--addressed", "shows all that is sent to this node; allowed: no filter beside it")
    if near is None and not addressed:  # what is wrong is said before a node is looked for
        given = {"wanted": filter_from(**given)}
    function = None if modulator is None else _modulator(modulator, parameters)

    async def listen(client: Client) -> None:
        shown = 0
        subscription = (
            nullcontext(client.addressed)
            if addressed
            else client.subscribe(**given, modulator=function, near=near, position=position)
        )
        with suppress(TimeoutError):  # the first position may be waited for as well
            async with asyncio.timeout(seconds), subscription as messages:
                while count is None or shown < count:
                    show(await messages.next())
                    shown += 1

    place = place._replace(addressed=addressed)
    if on_lost is None:
        place.run("roamcast subscribe", listen)
    else:
        place.stay("roamcast subscribe", listen, on_lost)


def revoke(place: NodePlace, device: str, *, undo: bool) -> NodeId:
    """Through the node at hand, to all members that it reaches now or later; the device's number."""

    async def say(client: Client) -> NodeId:
        number = await number_of(client, device)
        await client.revoke(number, undo=undo)
        return number

    return place.run("roamcast key revoke", say)


def forget(place: NodePlace, device: str) -> NodeId:
    async def say(client: Client) -> NodeId:
        number = await number_of(client, device)
        await client.forget(number)
        return number

    return place.run("roamcast key forget", say)


def numbers_of(place: NodePlace, nodes: Sequence[str]) -> tuple[NodeId, ...]:
    """The nodes that are meant by names or numbers."""

    async def ask(client: Client) -> tuple[NodeId, ...]:
        return tuple([await number_of(client, node) for node in nodes])

    return place.run("roamcast publish", ask) if nodes else ()


async def number_of(client: Client, text: str) -> NodeId:
    """The node that somebody means by a name or a number; `InputError` where that is nobody, or several."""
    if is_count(text):
        return int(text)
    names = (await client.status()).names
    found = sorted(node for node, name in names.items() if name == text)
    if len(found) > 1:
        one_of = " or ".join(map(str, found))
        raise InputError(text, f"is the name of several nodes; allowed: one of their numbers, {one_of}")
    if not found:
        from roamcast.explain import unknown

        raise InputError(text, unknown(text, sorted(names.values()), "is no node that is known here"))
    return found[0]


def is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= COUNT_MAX


def advertise(place: NodePlace, type: str, on_ready: Callable[[], None], seconds: float | None) -> None:
    """Advertise a type for so many seconds, or until the program or the node ends."""

    async def stand(client: Client) -> None:
        await client.advertise(type)
        on_ready()
        try:
            async with asyncio.timeout(seconds):
                raise ClientError(await client.lost)
        except TimeoutError:
            await client.withdraw(type)

    place.run("roamcast advertise", stand)


def _modulator(name: str, parameters: str) -> "ModulatorSpec":
    from roamcast.modulator import ModulatorSpec

    try:
        return ModulatorSpec.of(name, msgspec.json.decode(parameters, type=dict[str, Any]))
    except msgspec.DecodeError as error:
        raise InputError("--parameters", f"is {parameters!r}; allowed: a JSON object ({error})") from None


def to_json(message: Message, file: Path | None = None, **more: object) -> str:
    """One line. A payload that is UTF-8 text is given as `text`, another in Base64; the `file` that has it
    instead of either."""
    event = message.event
    fields: dict[str, object] = {
        "publisher": event.publisher,
        "sequence": event.sequence,
        "topic": event.topic,
        "type": event.type,
        "attributes": event.attributes,
        "class": event.event_class.value,
        "hops": message.hops,
        **more,
        **(content_of(event) if file is None else {"file": str(file)}),
    }
    return msgspec.json.encode(fields).decode()


def content_of(event: Event) -> dict[str, str]:
    try:
        return {"text": event.payload.decode()}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(event.payload).decode()}


def to_line(message: Message, file: Path | None = None) -> str:
    """For people: topic or type, attributes, the payload as far as it is printable, or the file with it."""
    event = message.event
    head = event.topic or event.type or f"{event.publisher}:{event.sequence}"
    attributes = " ".join(f"{name}={value}" for name, value in of_applications(event.attributes).items())
    shown = printable(event.payload) if file is None else str(file)
    return " ".join(part for part in (head, attributes, shown) if part)


def printable(payload: bytes) -> str:
    text = payload[:4_000].decode(errors="replace")
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text[:1000])


def write_payload(folder: Path, message: Message) -> Path:
    """Write a payload into a file of its own, whole or not at all: `PUBLISHER-SEQUENCE-LAST.TOPIC.LEVEL`."""
    event = message.event
    # A topic comes from anywhere: what remains of it is one plain name.
    last = re.sub(r"[^\w.-]", "_", event.topic.rpartition("/")[2], flags=re.ASCII).lstrip(".")[:100]
    name = f"{event.publisher}-{event.sequence}" + (f"-{last}" if last else "")
    path, unfinished = folder / name, folder / f".{name}.unfinished"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(event.payload)
        unfinished.replace(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror}") from None
    return path


FAILURE = "error"  # attribute of an answer: why there is none
COMMAND_SECONDS = 60.0  # for a command that answers a request without a deadline; chosen by us


def publish_reached(
    place: NodePlace, reached: int | tuple[NodeId | str, ...], deadline: float, keywords: PublicationKeywords
) -> Reached:
    publication(**keywords)  # `EventError` before anything is sent
    return place.run(
        "roamcast publish", lambda client: client.publish(reached=reached, deadline=deadline, **keywords)
    )


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
    complain: Callable[[str], None],
    *,
    deadline: float,
    answers: int,
    memorized: bool,
    **keywords: Unpack[PublicationKeywords],
) -> int:
    """How many answers came. `answers` 0: as many as come until the deadline."""
    publication(**keywords)

    async def ask(client: Client) -> int:
        came = 0
        async for answer in client.request(
            deadline=deadline, answers=answers or None, memorized=memorized, **keywords
        ):
            if (failure := answer.event.attributes.get(FAILURE)) is not None and not answer.payload:
                from roamcast.columns import Naming

                called = Naming((await client.status()).names)
                complain(f"{called(answer.node)} answers: {failure}")
                continue
            show(answer)
            came += 1
        return came

    return place.run("roamcast request", ask)


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

    async def serve(client: Client) -> None:
        answered = 0
        async for asked in client.requests(topic):
            if _is_late(asked):
                continue  # it waited here while others were answered
            show(asked)
            if command is not None:
                try:
                    answer = await output_of(command, asked, complain)
                except CommandFailedError as failure:
                    await asked.reply(attributes={FAILURE: str(failure)})
                    continue
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

    place.run("roamcast reply", serve)


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
    return place.run(
        "roamcast query",
        lambda client: client.query(wanted=wanted, latest=latest, limit=limit, deadline=deadline),
    )


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
        "attributes": of_applications(event.attributes),
        **content_of(event),
    }
    return msgspec.json.encode(fields).decode()


def _is_late(asked: IncomingRequest) -> bool:
    return asked.expires_at is not None and asyncio.get_running_loop().time() >= asked.expires_at


class CommandFailedError(RoamcastError):
    """Whoever asked is told that there is no answer, but not which command failed."""


async def output_of(command: str, asked: IncomingRequest, complain: Callable[[str], None]) -> bytes | None:
    """What the command prints for the request, which it has on standard input; None if it is too late."""
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
        complain(f"the command ended with {process.returncode}: {command}")
        raise CommandFailedError(f"the command ended with {process.returncode}")
    return output.removesuffix(b"\n")


def _next_line(lines: Iterator[bytes]) -> bytes | None:
    line = next(lines, None)
    return None if line is None else line.rstrip(b"\r\n")
