"""A gateway in fifty lines: `nc 127.0.0.1 4750` publishes and subscribes by lines of text.

    SUB alarm/#             every event on these topics comes back as a line from now on
    PUB alarm/fire smoke    publishes an event with the payload `smoke`

Each connection is one session of the node (`ApplicationSession`). The session decides what is admitted; a
gateway only finds words for it. Whatever a client sends is hostile until it is decoded.
"""

import asyncio

from roamcast.applications import Applications, ApplicationSession
from roamcast.broker.core import Delivery
from roamcast.broker.store import StoreFullError
from roamcast.errors import InputError
from roamcast.event import Publication
from roamcast.filter import Filter

LINE_BYTES_MAX = 4096
UNREAD_BYTES_MAX = 65_536  # of a client that does not read; what comes beyond is left out


class LineGateway:
    def __init__(self, applications: Applications) -> None:
        self._applications = applications

    async def start(self, port: int = 4750) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", port, limit=LINE_BYTES_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def receive(delivery: Delivery) -> None:
            if writer.transport.get_write_buffer_size() < UNREAD_BYTES_MAX:
                writer.write(delivery.event.topic.encode() + b" " + delivery.event.payload + b"\n")

        session = self._applications.open(receive)
        try:
            while line := await reader.readline():
                writer.write(self._answer(session, line).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the client is gone, or its line is too long
        finally:
            session.close()
            writer.close()

    def _answer(self, session: ApplicationSession, line: bytes) -> str:
        try:
            match line.decode().split(maxsplit=2):
                case ["SUB", topic]:
                    session.subscribe(Filter.topic(topic))
                case ["PUB", topic, payload]:
                    session.publish(Publication(payload=payload.strip().encode(), topic=topic)).check()
                case _:
                    return "ERROR say SUB TOPIC or PUB TOPIC PAYLOAD"
        except (InputError, StoreFullError, UnicodeDecodeError) as error:
            return f"ERROR {error}"
        return "OK"
