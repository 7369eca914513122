"""The examples of CONTRIBUTING.md: a metric and a gateway of one's own."""

import asyncio
import importlib.util
import re
from pathlib import Path
from typing import Any

from tests.gateway.mqtt.stand_alone import StandAloneNode

from roamcast import plugins
from roamcast.lab.run.runs import simulate
from roamcast.scenario import scenario_from

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "first"
LONG = 30.0  # seconds; no test waits for it


def test_the_page_shows_the_metric_as_it_is() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert (FOLDER / "largest_frame.py").read_text() in re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_metric_is_measured_in_a_run() -> None:
    tables = {
        "scenario": {"name": "m", "duration": 3.0, "modules": ["largest_frame"]},
        "world": {"nodes": 2, "area": [9.0, 9.0], "range": 20.0, "mobility": {"model": "static"}},
        "strategy": {"name": "flooding"},
    }
    try:
        largest = simulate(scenario_from(tables, FOLDER)).metrics["largest_frame"]
        assert largest is not None and largest > 256
    finally:
        plugins._forget("largest_frame")


def test_two_clients_of_the_gateway_talk_over_a_node() -> None:
    asyncio.run(asyncio.wait_for(talk(), LONG))


async def talk() -> None:
    node = StandAloneNode()
    server = await gateway(node.applications).start(0)
    port = server.sockets[0].getsockname()[1]
    listener, speaker = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    assert await said(listener, b"SUB alarm/#") == b"OK\n"
    assert await said(speaker, b"PUB alarm/fire third floor") == b"OK\n"
    assert await listener[0].readline() == b"alarm/fire third floor\n"
    for bad in (b"SUB a/#/b", b"PUB alarm/#  x", b"hello", b"SUB \xff"):
        assert (await said(speaker, bad)).startswith(b"ERROR "), bad
    speaker[1].write(b"x" * 10_000 + b"\n")  # too long: this client is let go, the others stay
    assert await speaker[0].read() == b""
    assert await said(listener, b"PUB news still here") == b"OK\n"
    listener[1].close()
    speaker[1].close()
    server.close()


async def said(client: tuple[asyncio.StreamReader, asyncio.StreamWriter], line: bytes) -> bytes:
    client[1].write(line + b"\n")
    return await client[0].readline()


def gateway(applications: Any) -> Any:
    spec = importlib.util.spec_from_file_location("lines", FOLDER / "lines.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LineGateway(applications)
