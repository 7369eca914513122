"""Programs of one's own on emulated nodes: they talk to the nodes' sockets, as on devices.

async def play(sockets: list[Path]) -> int:
    async with connect(sockets[0]) as client: ...

result = asyncio.run(play_on(scenario, play))
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from roamcast.runtime.emulate.emulation import Emulation
from roamcast.runtime.emulate.stage import Stage
from roamcast.scenario.model import Scenario

Result = TypeVar("Result")


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
