"""One virtual time for many processes, each an event loop of its own.

A process is an asyncio loop that `Timeline` advances by single passes, always the one that has something to
do first. So `asyncio.get_running_loop`, tasks and timers mean what they mean in a real process, and a killed
process is a loop that gets no further pass: whatever it had planned never happens.

While a process waits for its disk (`ProcessLoop.block`) only its own time goes on; the others run, and find
it busy until then.
"""

import asyncio
import socket
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

LOCAL_PORT = 1  # stands for the path of a machine's local socket
TICK = 1e-7  # seconds; the smallest step of virtual time


class Killed(KeyboardInterrupt):  # asyncio and our own code let this one pass
    """The process dies here. The code above it on the stack never goes on."""


class ProcessLoop(asyncio.BaseEventLoop):
    def __init__(self, timeline: "Timeline", name: str) -> None:
        super().__init__()
        self.timeline = timeline
        self.name = name
        self.busy_until = 0.0
        self.is_dead = False
        self.passed = 0  # the number of its last pass
        self.readers: dict[Any, Callable[[], None]] = {}
        self._clock_resolution = TICK
        self._selector = _Nothing()
        self.set_exception_handler(self._on_fault)

    def time(self) -> float:
        return max(self.timeline.now, self.busy_until)

    def block(self, seconds: float) -> None:
        """This process waits for something and does nothing else meanwhile."""
        self.busy_until = self.time() + seconds

    def due(self) -> float | None:
        """When it has something to do; None: never."""
        if self._ready:  # type: ignore[attr-defined]
            return self.time()
        scheduled = self._scheduled  # type: ignore[attr-defined]
        return max(scheduled[0].when(), self.busy_until) if scheduled else None

    def kill(self) -> None:
        self.is_dead = True
        self.timeline.forget(self)
        self.close()

    def _check_closed(self) -> None:
        pass  # what still runs of a dead process may plan what it likes

    # What asyncio's base class leaves to the system's loop.

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        self.readers[fd] = lambda: callback(*args)
        fd.wake()

    def remove_reader(self, fd: Any) -> bool:
        return self.readers.pop(fd, None) is not None

    def remove_writer(self, fd: Any) -> bool:
        return False

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        return self.timeline.network.listen(self, factory, host, port, options.get("sock"))

    async def create_unix_server(self, factory: Any, path: Any = None, **_: Any) -> Any:  # type: ignore[override]
        """The file is a real one, so that a killed process leaves it behind; nobody connects to it."""
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(path)
        return self.timeline.network.listen(self, factory, None, LOCAL_PORT, None)

    async def sock_connect(self, sock: Any, address: Any) -> None:
        await asyncio.sleep(self.timeline.network.delay(sock.address, address[0]))
        sock.connect(address)

    async def create_connection(self, factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:  # type: ignore[override]
        protocol = factory()
        return self.timeline.network.connect(self, sock, protocol), protocol

    def _on_fault(self, _: Any, context: dict[str, Any]) -> None:
        if not self.is_dead:
            error = context.get("exception")
            frames = traceback.extract_tb(error.__traceback__)[-3:] if error is not None else []
            where = " < ".join(f"{one.name}:{one.lineno}" for one in reversed(frames))
            self.timeline.faults.append(f"{self.name}: {context.get('message')} {error!r} ({where})")


class Timeline:
    def __init__(self) -> None:
        self.now = 0.0
        self.loops: list[ProcessLoop] = []
        self.faults: list[str] = []  # exceptions that nobody caught
        self.network: Any = None
        self.on_killed: Callable[[ProcessLoop], None] = lambda loop: None
        self._passes = 0

    def process(self, name: str) -> ProcessLoop:
        loop = ProcessLoop(self, name)
        self.loops.append(loop)
        return loop

    def forget(self, loop: ProcessLoop) -> None:
        if loop in self.loops:
            self.loops.remove(loop)

    def run(self, until: float, is_over: Callable[[], bool] | None = None) -> None:
        """Advance to this time, or until it is over."""
        while is_over is None or not is_over():
            due = [(at, loop.passed, loop) for loop in self.loops if (at := loop.due()) is not None]
            if not due:
                break
            at, _, loop = min(due, key=lambda one: one[:2])
            if at > until:
                break
            self.now = max(self.now, at)
            self.step(loop)
        else:
            return
        self.now = max(self.now, until)

    def step(self, loop: ProcessLoop) -> None:
        """One pass of one process, in which it may die."""
        self._passes += 1
        loop.passed = self._passes
        asyncio._set_running_loop(loop)  # `run_forever` takes longer than most passes
        try:
            loop._run_once()  # type: ignore[attr-defined]
        except Killed:
            loop.kill()
            self.on_killed(loop)
        finally:
            asyncio._set_running_loop(None)

    def complete(self, loop: ProcessLoop, work: Coroutine[Any, Any, Any], within: float = 60.0) -> Any:
        """The result of a coroutine of a process, or None if the process died meanwhile."""
        task = loop.create_task(work)
        self.run(self.now + within, lambda: task.done() or loop.is_dead)
        if loop.is_dead:
            return None
        assert task.done(), f"{loop.name} does not come to an end"
        return task.result()


class _Nothing:
    """A selector without files: what comes is scheduled by who sends it."""

    def select(self, timeout: float | None) -> list[Any]:
        return []
