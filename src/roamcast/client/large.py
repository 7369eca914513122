"""Publishing a payload above the bound of one event: in parts, of which a few are on their way at a time.

The node says how many are in the mesh, so `on_progress` tells how far it really is, and small events of the
same program never wait behind more than those few parts.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from roamcast.chunks.form import CHUNK_BYTES, digest_of
from roamcast.chunks.transfer import pieces
from roamcast.event import Publication
from roamcast.wire.local import PARTS_AHEAD, ClientMessage, LargeRequest, PartsPublished, PayloadPart

OnProgress: TypeAlias = Callable[[int, int], None]
"""Gets the octets that are in the mesh, and how many there are."""
Answer = TypeVar("Answer")


class PartsLink(Protocol):
    def send(self, message: ClientMessage) -> None: ...


class LargeSending:
    """One publication that is under way."""

    def __init__(self, link: PartsLink, ready: Publication, request: int) -> None:
        self._link = link
        self._ready = ready
        self._request = request
        self._published = 0  # parts
        self._changed = asyncio.Event()

    def on_published(self, message: PartsPublished) -> None:
        self._published = message.parts
        self._changed.set()

    async def run(self, answer: "asyncio.Future[Answer]", on_progress: OnProgress | None) -> Answer:
        """The node's answer, which may be an error."""
        payload = self._ready.payload
        answer.add_done_callback(lambda _: self._changed.set())
        frame = self._ready.without_payload()
        self._link.send(LargeRequest(self._request, frame, len(payload), digest_of(payload)))
        parts = pieces(payload)
        sent = 0
        while not answer.done():
            while sent - self._published < PARTS_AHEAD and (part := next(parts, None)) is not None:
                self._link.send(PayloadPart(self._request, part))
                sent += 1
            self._changed.clear()
            await self._changed.wait()
            if on_progress is not None:
                on_progress(min(self._published * CHUNK_BYTES, len(payload)), len(payload))
        return await answer
