"""Flood watch: real rain over real terrain, watched from a laptop whose network changes under it.

    python examples/flood/flood_watch.py [--out FOLDER] [--events 800] [--mode opportunistic] [--box]

Plays the storm of September 2013 through the scenario `flood.toml` in the simulator: A sends a grid of rain
per event, the client's runoff model runs in a broker on A or B, C gets the water depth. Prints the latency
on each of the four topologies and draws the map with the most water of all that C got. `--box` asks for a
tenth of the area only.
"""

import argparse
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from roamcast.errors import InputError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.lab.studies.flood import rain
from roamcast.lab.studies.flood.runoff import TERRAIN, Runoff, RunoffParameters, read_terrain
from roamcast.lab.studies.testbed import TENTH
from roamcast.modulator import MODULATORS, Content, ModulatorSpec
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import read_tables, scenario_from
from roamcast.trace import Delivered, Published
from roamcast.units import SECOND, Micros, micros

A, B, C = 0, 1, 2
TOPOLOGIES = ["A-B-C", "A-B-C-A", "A-C-B", "B-A-C"]
TOPOLOGY_SECONDS = 200
SHOWN_FROM = 5.0  # millimetres
WATER = "viridis_r"  # dark is deep, and the shallowest differs from the terrain's grey


class Map(NamedTuple):
    """What C got: the water's depth in millimetres, where its first cell lies, and of which moment it is."""

    depth: npt.NDArray[np.float32]
    place: tuple[int, int]
    moment: datetime


class WatchedRunoff(Runoff):
    """Keeps what it makes, by event: the simulator's trace says which of it arrived, not what was in it."""

    products: ClassVar[dict[int, Content]] = {}

    def process(self, event: Event) -> Content | None:
        content = super().process(event)
        if content is not None:
            self.products[event.sequence] = content
        return content


class FloodWatch:
    """One run: the sender on A, the client on C."""

    def __init__(self, mode: str, box: bool, events: int) -> None:
        folder = Path(__file__).parent
        WatchedRunoff.products.clear()
        if "watched_runoff" not in MODULATORS.names():
            MODULATORS.add("watched_runoff", RunoffParameters, lambda _, own: WatchedRunoff(own))
        tables = read_tables(folder / "flood.toml")
        scenario = scenario_from(tables, folder, [("strategy.options.mode", mode)])
        self._simulation = Simulation(scenario)
        self._gauge = rain.hourly()
        self.maps: list[Map] = []
        parameters = {"box": TENTH} if box else {}
        self._wanted = ModulatorSpec.of("watched_runoff", parameters)
        # Where nothing happens the storm is as long; fewer events skip evenly.
        self._simulation.engine.at(0, self._subscribe)
        for number in range(events):
            at = micros((number + 0.5) * 4 * TOPOLOGY_SECONDS / events)
            self._simulation.engine.at(at, self._send, number * rain.EVENTS // events)

    def run(self) -> list[float | None]:
        """The mean latency on each topology in seconds; None where nothing arrived."""
        trace = self._simulation.run().trace
        arrived: dict[int, Micros] = {}
        for delivered in trace.of(Delivered):
            self._keep(WatchedRunoff.products[delivered.sequence])
            arrived.setdefault(delivered.sequence, delivered.t)
        means: list[float | None] = []
        for number in range(len(TOPOLOGIES)):
            begin: Micros = number * TOPOLOGY_SECONDS * SECOND
            end = begin + TOPOLOGY_SECONDS * SECOND
            took = [
                arrived[sent.sequence] - sent.t
                for sent in trace.of(Published)
                if begin + 20 * SECOND <= sent.t < end and sent.sequence in arrived
            ]
            means.append(sum(took) / len(took) / SECOND if took else None)
        return means

    def _subscribe(self, _: None) -> None:
        client = self._simulation.nodes[C]
        assert client is not None
        client.subscribe(1, Filter.sql("quantity = 'rain'"), modulator=self._wanted)

    def _send(self, number: int) -> None:
        sender = self._simulation.nodes[A]
        assert sender is not None
        sender.publish(rain.publication(number, self._gauge))

    def _keep(self, content: Content) -> None:
        names = ("rows", "columns", "row", "column", "quarter_hour")
        at = {name: int(str(content.attributes[name])) for name in names}
        depth = np.frombuffer(content.payload, "<f4").reshape(at["rows"], at["columns"])
        moment = rain.BEGIN + timedelta(hours=(at["quarter_hour"] + 1) / rain.PER_HOUR)
        self.maps.append(Map(depth, (at["row"], at["column"]), moment))


def draw(shown: Map, target: Path) -> None:
    """The water over the shaded terrain."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import LightSource, LogNorm
    from matplotlib.patches import Rectangle

    ground = read_terrain(TERRAIN) / 1e6
    figure, axes = pyplot.subplots(figsize=(7, 6), layout="constrained")
    # Pale, so that the water is what one sees.
    axes.imshow(LightSource(315, 45).hillshade(ground, dx=90, dy=90), cmap="gray", vmin=-1.5, vmax=1.0)
    (top, left), (rows, columns) = shown.place, shown.depth.shape
    extent = (left - 0.5, left + columns - 0.5, top + rows - 0.5, top - 0.5)
    water = np.ma.masked_less(shown.depth, SHOWN_FROM)
    drawn = axes.imshow(water, cmap=WATER, norm=LogNorm(SHOWN_FROM, 3_000.0), extent=extent)
    if shown.depth.size < ground.size:
        axes.add_patch(Rectangle((left - 0.5, top - 0.5), columns, rows, fill=False, edgecolor="black"))
    axes.set(xlim=(-0.5, 99.5), ylim=(99.5, -0.5))
    axes.set(title=f"Water depth near Boulder, {shown.moment:%d %B %Y, %H:%M}")
    axes.set(xlabel="cells of about 90 m, to the east", ylabel="to the south")
    figure.colorbar(drawn, label="millimetres")
    figure.savefig(target, dpi=120)
    pyplot.close(figure)


def say(text: object, to: TextIO = sys.stdout) -> None:
    to.write(f"{text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Flood watch in the simulator.")
    parser.add_argument("--out", type=Path, default=Path("flood-watch"), help="folder for the map")
    parser.add_argument("--events", type=int, default=rain.EVENTS, help="1 to 800")
    parser.add_argument("--mode", choices=["opportunistic", "static"], default="opportunistic")
    parser.add_argument("--box", action="store_true", help="a tenth of the area only")
    arguments = parser.parse_args()
    if not 1 <= arguments.events <= rain.EVENTS:
        parser.error(f"--events is {arguments.events}; allowed: 1 to {rain.EVENTS}")
    watch = FloodWatch(arguments.mode, arguments.box, arguments.events)
    means = watch.run()
    for topology, latency in zip(TOPOLOGIES, means, strict=True):
        say(f"{topology:8} {'nothing arrived' if latency is None else f'{1000 * latency:7.0f} ms'}")
    if not watch.maps:
        say("nothing arrived", sys.stderr)
        return 1
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / f"depth-{arguments.mode}{'-box' if arguments.box else ''}.png"
    fullest = max(watch.maps, key=lambda one: float(one.depth.sum(dtype=np.float64)))
    draw(fullest, target)
    say(f"{len(watch.maps)} of {arguments.events} maps arrived; the one with the most water is {target}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        say(error, sys.stderr)
        sys.exit(2)
