"""Flood watch on real nodes: PreSend sends rain from one device, the client on another sees the water.

    python examples/flood/live.py watch --socket c.sock --out maps        # on C
    python examples/flood/live.py send --socket a.sock --every 1.0        # on A
    python examples/flood/live.py emulate --out maps                      # both, in namespaces (Linux)

The two programs of the work (opportunistic overlays, section 4.3), on grids of 64-bit floats. The client
subscribes with the runoff model, which runs in a broker and moves with the client's home. The nodes have
`strategy = "opportunistic"` and `modules = ["flood_functions"]`; README.md has the files. `emulate` changes
the topology as the work does: A-B-C, A-B-C-A, A-C-B, B-A-C.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import flood_functions
import numpy as np
import numpy.typing as npt
from flood_watch import TOPOLOGIES, Map, draw, say

from roamcast.client import Message, connect
from roamcast.errors import InputError, RoamcastError
from roamcast.event import Publication, Value
from roamcast.lab.studies.flood import rain
from roamcast.lab.studies.testbed import TENTH
from roamcast.modulator import ModulatorSpec

FOLDER = Path(__file__).parent
A, C = 0, 2
SETTLED_S = 8.0  # the overlay has formed


class Watched(NamedTuple):
    """What the client got: each map with the time that it took, in seconds."""

    maps: list[Map]
    took: list[float]


def pre_sent(number: int, gauge: list[float]) -> Publication:
    """A grid of rain. `sent_at` is the sender's clock, for latencies on one machine."""
    attributes: dict[str, Value] = {
        "quantity": "rain",
        "quarter_hour": number,
        "rows": rain.SIDE,
        "columns": rain.SIDE,
        "sent_at": time.time(),
    }
    return Publication(attributes, flood_functions.deflated(rain.grid(number, gauge)), topic="flood/rain")


async def send(socket: Path, events: int, every: float) -> None:
    """PreSend: the whole storm in so many events, evenly."""
    gauge = rain.hourly()
    async with connect(socket, name="PreSend") as client:
        begin = time.monotonic()
        for number in range(events):
            await asyncio.sleep(max(0.0, begin + number * every - time.monotonic()))
            await client.send(pre_sent(number * rain.EVENTS // events, gauge))


async def watch(socket: Path, events: int, patience: float, box: bool, watched: Watched) -> None:
    """The client: until so many maps have come, or none for so long."""
    wanted = ModulatorSpec.of(flood_functions.NAME, {"box": TENTH} if box else {})
    async with (
        connect(socket, name="flood watch") as client,
        client.subscribe(topic="flood/rain", modulator=wanted) as messages,
    ):
        wait = None  # for the first one as long as it takes
        while len(watched.maps) < events:
            try:
                message = await messages.next(wait)
            except TimeoutError:
                return
            wait = patience
            if (shown := map_of(message)) is not None:
                watched.maps.append(shown)
                watched.took.append(time.time() - float(str(message.event.attributes["sent_at"])))


def map_of(message: Message) -> Map | None:
    at = message.event.attributes
    try:
        rows, columns, row, column, quarter = (
            int(str(at[name])) for name in ("rows", "columns", "row", "column", "quarter_hour")
        )
    except (KeyError, ValueError):
        return None
    grid: npt.NDArray[np.float64] | None = flood_functions.inflated(message.event.payload, rows * columns)
    if grid is None:
        return None
    moment = rain.BEGIN + timedelta(hours=(quarter + 1) / rain.PER_HOUR)
    return Map(grid.reshape(rows, columns).astype(np.float32), (row, column), moment)


def report(watched: Watched, events: int, folder: Path) -> int:
    if not watched.maps:
        sys.stderr.write("flood watch: nothing arrived\n")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "depth.png"
    draw(max(watched.maps, key=lambda one: float(one.depth.sum(dtype=np.float64))), target)
    median = 1000 * sorted(watched.took)[len(watched.took) // 2]
    say(f"{len(watched.maps)} of {events} maps arrived, half of them within {median:.0f} ms")
    say(f"the one with the most water is {target}")
    return 0


# The commands.


def _send(options: argparse.Namespace) -> int:
    asyncio.run(send(options.socket, options.events, options.every))
    say(f"{options.events} grids sent")
    return 0


def _watch(options: argparse.Namespace) -> int:
    watched = Watched([], [])
    with suppress(KeyboardInterrupt):
        asyncio.run(watch(options.socket, options.events, options.patience, options.box, watched))
    return report(watched, options.events, options.out)


def _emulate(options: argparse.Namespace) -> int:
    from roamcast.runtime.emulate.programs import play_on
    from roamcast.scenario import read_tables, scenario_from

    lasts = options.events * options.every / len(TOPOLOGIES)
    tables = read_tables(FOLDER / "live.toml")
    tables["scenario"]["duration"] = SETTLED_S + len(TOPOLOGIES) * lasts + options.patience + 10.0
    for fault in tables["fault"]:  # the file counts topologies, not seconds
        fault["at"] = SETTLED_S + fault["at"] * lasts
    watched = Watched([], [])

    async def play(sockets: list[Path]) -> None:
        watching = asyncio.ensure_future(
            watch(sockets[C], options.events, options.patience, options.box, watched)
        )
        await asyncio.sleep(SETTLED_S)
        await send(sockets[A], options.events, options.every)
        await asyncio.wait([watching], timeout=options.patience)
        watching.cancel()

    asyncio.run(play_on(scenario_from(tables, FOLDER), play))
    return report(watched, options.events, options.out)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        made = commands.add_parser(name)
        made.set_defaults(run=run)
        made.add_argument("--events", type=int, default=40, help=f"1 to {rain.EVENTS}")
        return made

    sending, watching, emulating = (
        command("send", _send),
        command("watch", _watch),
        command("emulate", _emulate),
    )
    for each in (sending, watching):
        each.add_argument("--socket", type=Path, default=Path("roamcast.sock"))
    for each in (sending, emulating):
        each.add_argument("--every", type=float, default=1.0, help="seconds between two grids")
    for each in (watching, emulating):
        each.add_argument("--out", type=Path, default=Path("flood-watch"), help="folder for the map")
        each.add_argument("--box", action="store_true", help="a tenth of the area only")
        each.add_argument("--patience", type=float, default=10.0, help="seconds of silence that end it")
    options = parser.parse_args(arguments)
    if not 1 <= options.events <= rain.EVENTS:
        parser.error(f"--events is {options.events}; allowed: 1 to {rain.EVENTS}")
    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except RoamcastError as error:
        sys.stderr.write(f"flood watch: {error}\n")
        return 2 if isinstance(error, InputError) else 1


if __name__ == "__main__":
    sys.exit(main())
