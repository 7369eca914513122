"""Live nodes for the tests of this folder: on the loopback, quick, with faults of ours as failures."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from roamcast.runtime.live.node import LiveNode
from roamcast.runtime.live.settings import (
    AirSettings,
    KeySettings,
    LiveSettings,
    NodeSettings,
    PartSettings,
    TraceSettings,
)
from roamcast.runtime.live.world import NodeWorld
from roamcast.sealing import GroupKey, Identity

GROUP = GroupKey.generate().to_text()

# As fast as they go: these tests wait for real time.
QUICK: dict[str, dict[str, Any]] = {
    "tree": {"beacon_interval": 0.1, "hello_interval": 0.3, "discover_timeout": 0.2},
    "chapar": {"hello_interval": 0.1, "tc_interval": 0.2, "role_interval": 0.1, "consistency_interval": 0.3},
}


def settings(
    number: int | None = None,
    *,
    port: int,
    strategy: str = "flooding",
    state: str | None = None,
    trace: TraceSettings | None = None,
    group: str = GROUP,
    identity: str | None = None,
    options: dict[str, Any] | None = None,
    **air: Any,
) -> LiveSettings:
    return LiveSettings(
        node=NodeSettings(number=number, state=state),
        keys=KeySettings(identity=identity or Identity.generate().to_text(), group=(group,)),
        air=AirSettings(interface="lo", port=port, presence=0.1, **air),
        strategy=PartSettings(name=strategy, options=QUICK.get(strategy, {}) if options is None else options),
        trace=trace or TraceSettings(),
    )


@asynccontextmanager
async def running(
    *wanted: LiveSettings, base: Path = Path(), world: NodeWorld | None = None
) -> AsyncIterator[list[LiveNode]]:
    nodes: list[LiveNode] = []
    with faults() as errors:
        try:
            for one in wanted:
                node = await LiveNode.start(one, base, world)
                nodes.append(node)
            yield nodes
        finally:
            for node in nodes:
                await node.stop()
    if errors:
        raise errors[0]


@contextmanager
def faults() -> Iterator[list[BaseException]]:
    """The exceptions that handlers of nodes raise meanwhile, which a node only logs."""
    errors: list[BaseException] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1] is not None:
                errors.append(record.exc_info[1])

    collector = Collector()
    logging.getLogger("roamcast.node").addHandler(collector)
    try:
        yield errors
    finally:
        logging.getLogger("roamcast.node").removeHandler(collector)


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def acquainted(*nodes: LiveNode) -> Callable[[], bool]:
    """Each has heard all the others."""
    return lambda: all(
        one.radio.peers.get(other.number) for one in nodes for other in nodes if one is not other
    )
