"""The fair stream by itself, on a transport that a test drives by hand."""

import asyncio
from typing import Any

from roamcast.errors import WireError
from roamcast.gateway.stream import SLICE_SECONDS, FairStream, Turn


class Lines:
    """A framer: one octet is one item."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def push(self, data: bytes) -> None:
        self._waiting += data

    def pop(self) -> bytes | None:
        return bytes([self._waiting.pop(0)]) if self._waiting else None


class Wire:
    """A transport that pauses its stream whenever more than `room` octets were written and not read."""

    def __init__(self, room: int) -> None:
        self.stream: Any = None
        self.room = room
        self.written = bytearray()
        self.unread = 0
        self.is_aborted = False
        self.has_ended = False

    def write(self, data: bytes) -> None:
        if self.has_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        self.written += data
        self.unread += len(data)
        if self.unread > self.room:
            self.stream.pause_writing()

    def read_all(self) -> None:
        self.unread = 0
        self.stream.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.unread

    def set_write_buffer_limits(self, high: int) -> None: ...
    def get_extra_info(self, name: str) -> None: ...
    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        self.is_aborted = True


class Talk(FairStream[bytes]):
    def __init__(self, turn: Turn) -> None:
        super().__init__(turn, Lines(), write_bytes_max=1_000)
        self.became_writable = 0
        self.handled: list[bytes] = []

    def on_item(self, item: bytes) -> None:
        if item == b"!":
            raise RuntimeError("a fault of ours")
        self.handled.append(item)
        if item == b"q":
            self.close()
        elif item == b"a":
            self.send(b"answer")

    def on_malformed(self, error: WireError) -> None: ...
    def on_lost(self) -> None: ...
    def on_writable(self) -> None:
        self.became_writable += 1


def talk(room: int) -> tuple[Talk, Wire]:
    stream, wire = Talk(Turn(asyncio.get_running_loop())), Wire(room)
    wire.stream = stream
    stream.connection_made(wire)  # type: ignore[arg-type]
    return stream, wire


def test_a_client_that_read_a_part_of_much_is_not_writable_before_it_has_read_the_rest() -> None:
    async def test() -> None:
        stream, wire = talk(room=1_000)
        for _ in range(10):
            stream.send(b"x" * 200_000)
        stream.flush()
        assert len(wire.written) < 2_000_000, "the first piece has filled the buffer"
        wire.read_all()
        assert stream.became_writable == 0, "what waited has filled it again"
        while len(wire.written) < 2_000_000:
            wire.read_all()
        wire.read_all()
        assert stream.became_writable == 1

    asyncio.run(test())


def test_all_that_was_sent_is_written_before_the_stream_closes() -> None:
    async def test() -> None:
        stream, wire = talk(room=1_000)
        stream.send(b"x" * 2_000_000)
        stream.send(b"the reason")
        stream.send_shared(memoryview(b"and the payload"))
        stream.close()
        assert wire.written.endswith(b"the reasonand the payload")

    asyncio.run(test())


def test_a_fault_while_items_wait_for_their_turn_ends_the_connection() -> None:
    async def test() -> None:
        stream, wire = talk(room=1_000)
        loop = asyncio.get_running_loop()
        faults: list[object] = []
        loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
        stream.data_received(b"." * 100 + b"!")  # more than one turn handles
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(stream.handled) == 100 and wire.is_aborted
        assert [type(fault) for fault in faults] == [RuntimeError]

    asyncio.run(test())


def test_a_client_whose_items_are_much_work_has_a_turn_of_milliseconds() -> None:
    """64 messages for 300 absent sessions each stopped a node for 60 ms."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        stream, _ = talk(room=100)
        handled: list[int] = []
        now, real = 0.0, loop.time

        def on_item(item: bytes) -> None:
            nonlocal now
            now += 0.001
            handled[-1] += 1

        stream.on_item = on_item  # type: ignore[method-assign]
        loop.time = lambda: now  # type: ignore[method-assign]
        try:
            handled.append(0)
            stream.data_received(b"x" * 20)
            while sum(handled) < 20:
                handled.append(0)
                stream._go_on()
        finally:
            loop.time = real  # type: ignore[method-assign]
        assert max(handled) <= 1 + 1_000 * SLICE_SECONDS and sum(handled) == 20

    asyncio.run(test())


def test_nothing_is_handled_behind_the_item_that_ends_a_stream() -> None:
    """Two requests in one segment: the answer to the first one ends the connection."""

    async def test() -> None:
        stream, wire = talk(room=1_000)
        stream.data_received(b"aqaa")
        assert stream.handled == [b"a", b"q"] and wire.written == b"answer" and wire.has_ended

    asyncio.run(test())


def test_nothing_is_read_of_a_stream_that_has_ended() -> None:
    async def test() -> None:
        stream, wire = talk(room=1_000)
        stream.data_received(b"q")
        stream.data_received(b"a")
        assert stream.handled == [b"q"] and not wire.written
        assert stream._framer.pop() is None, "what is not handled is not kept either"

    asyncio.run(test())


def test_nothing_is_written_to_a_stream_that_has_ended() -> None:
    async def test() -> None:
        stream, wire = talk(room=1_000)
        raised: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        stream.data_received(b"q")
        stream.send(b"too late")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not wire.written and not raised and not stream._out

    asyncio.run(test())
