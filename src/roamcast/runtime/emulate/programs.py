"""What others do while an emulation runs: programs of one's own, which talk to the nodes' sockets as on
devices, and faults by hand.

async def play(sockets: list[Path]) -> int:
    async with connect(sockets[0]) as client: ...

result = asyncio.run(play_on(scenario, play))
"""

import asyncio
import socket
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from roamcast.errors import InputError
from roamcast.runtime.emulate.emulation import PREFIX, Emulation
from roamcast.runtime.emulate.stage import Stage
from roamcast.scenario.model import Scenario

Result = TypeVar("Result")
ANSWER_TIMEOUT = 70.0  # seconds; a restart is answered when the node is there, within 60


async def play_on(scenario: Scenario, play: Callable[[list[Path]], Awaitable[Result]]) -> Result:
    """Run a scenario in real time, with a `roamcast node` process for each node, and `play` meanwhile. It
    gets the nodes' sockets as soon as all are there, and must end before the scenario does."""
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        stage = Stage(Path(name))
        running = asyncio.ensure_future(asyncio.to_thread(Emulation(scenario, folder=stage.folder).run))
        sockets = [stage.socket_of(node) for node in range(scenario.nodes)]
        while not running.done() and not all(socket.exists() for socket in sockets):
            await asyncio.sleep(0.1)
        playing = asyncio.ensure_future(play(sockets))
        try:
            await asyncio.wait([running, playing], return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                await running  # with its own error, if it has one
                raise TimeoutError("the scenario ended before the program did")
            return playing.result()
        finally:
            playing.cancel()
            await asyncio.wait([running, playing])


def happen(fault: str, folder: Path | None = None) -> str:
    """A fault of a scenario that is being emulated, by hand and now: `cut 2-3`, `heal 2-3`, `crash 3`,
    `restart 3`. `folder`: of which emulation, where several run on this machine."""
    places = [folder] if folder else sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    found = [place for place in places if Stage(place).control.exists()]
    if len(found) > 1:
        raise InputError("--of", f"is needed, for several run; allowed: {', '.join(map(str, found))}")
    try:
        with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rwb") as lines:
            connection.settimeout(ANSWER_TIMEOUT)
            connection.connect(str(Stage(found[0]).control))
            lines.write(fault.encode() + b"\n")
            lines.flush()
            has_happened, said = msgspec.json.decode(lines.readline(), type=tuple[bool, str])
    except (IndexError, OSError, msgspec.DecodeError):
        where = f"in {folder}" if folder else "here"
        raise InputError("fault", f"no emulation runs {where}; one takes some seconds to start") from None
    if not has_happened:
        raise InputError("fault", said)
    return said
