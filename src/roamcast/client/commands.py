"""What `roamcast publish`, `roamcast subscribe` and `roamcast advertise` do."""

import asyncio
import base64
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from roamcast.client.client import ClientError, Message, filter_from
from roamcast.client.connect import connect
from roamcast.client.publication import PublicationKeywords, publication
from roamcast.errors import InputError
from roamcast.event import PAYLOAD_BYTES_MAX, EventId, Value

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
    most = PAYLOAD_BYTES_MAX + 1  # enough to see that it is too much, however long the file
    try:
        with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as source:
            octets = source.read(most)
    except OSError as error:
        raise InputError(str(file), f"cannot be read: {error.strerror}") from None
    if len(octets) == most:
        raise InputError(str(file), f"has more than {PAYLOAD_BYTES_MAX} octets, the most that a payload has")
    return octets


def publish(socket: Path, **keywords: Unpack[PublicationKeywords]) -> EventId:
    """`EventError` for what is no valid event, before anything is sent."""
    ready = publication(**keywords)

    async def once() -> EventId:
        async with connect(socket, name="roamcast publish") as client:
            return await client.send(ready)

    return asyncio.run(once())


def subscribe(
    socket: Path,
    show: Callable[[Message], None],
    *,
    topic: str | None,
    sql: str | None,
    type: str | None,
    xpath: str | None,
    count: int | None,
    modulator: str | None = None,
    parameters: str = "{}",
) -> None:
    """Show each message as it comes; ends after `count` messages, or when the node stops."""
    wanted = filter_from(topic=topic, sql=sql, type=type, xpath=xpath)
    function = None if modulator is None else _modulator(modulator, parameters)

    async def listen() -> None:
        async with (
            connect(socket, name="roamcast subscribe") as client,
            client.subscribe(wanted, modulator=function) as messages,
        ):
            shown = 0
            while count is None or shown < count:
                show(await messages.next())
                shown += 1

    asyncio.run(listen())


def advertise(socket: Path, type: str, on_ready: Callable[[], None], seconds: float | None) -> None:
    """Advertise a type for so many seconds, or until the program or the node ends."""

    async def stand() -> None:
        async with connect(socket, name="roamcast advertise") as client:
            await client.advertise(type)
            on_ready()
            try:
                async with asyncio.timeout(seconds):
                    raise ClientError(await client.lost)
            except TimeoutError:
                await client.withdraw(type)

    asyncio.run(stand())


def _modulator(name: str, parameters: str) -> "ModulatorSpec":
    from roamcast.modulator import ModulatorSpec

    try:
        return ModulatorSpec.of(name, msgspec.json.decode(parameters, type=dict[str, Any]))
    except msgspec.DecodeError as error:
        raise InputError("--parameters", f"is {parameters!r}; allowed: a JSON object ({error})") from None


def to_json(message: Message) -> str:
    """One line. A payload that is UTF-8 text is given as `text`, another in Base64."""
    event = message.event
    fields: dict[str, object] = {
        "publisher": event.publisher,
        "sequence": event.sequence,
        "topic": event.topic,
        "type": event.type,
        "attributes": event.attributes,
        "class": event.event_class.value,
        "hops": message.hops,
    }
    try:
        fields["text"] = event.payload.decode()
    except UnicodeDecodeError:
        fields["payload"] = base64.b64encode(event.payload).decode()
    return msgspec.json.encode(fields).decode()


def to_line(message: Message) -> str:
    """For people: topic or type, attributes, the payload as far as it is printable."""
    event = message.event
    head = event.topic or event.type or f"{event.publisher}:{event.sequence}"
    attributes = " ".join(f"{name}={value}" for name, value in event.attributes.items())
    text = event.payload.decode(errors="replace")
    shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text[:1000])
    return " ".join(part for part in (head, attributes, shown) if part)
