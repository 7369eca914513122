"""Streams audio over a network that moves: a WAV file in at one node, the same file out at others.

    python examples/audio/tune.py tune.wav                    # something to play
    python examples/audio/stream.py simulate tune.wav out/    # five nodes, cut and healed, in virtual time
    python examples/audio/stream.py emulate tune.wav out/     # the same with five real nodes (Linux)
    python examples/audio/stream.py receive tune tune-here.wav --socket b.sock      # live, on one device
    python examples/audio/stream.py send tune.wav --socket a.sock                   # and on another

The application with which the acyclic-overlay work loaded its network (section 6.2.2): 256 kbit/s in packets
of 4 KiB, each with a number, from a source to all who are interested in it. A source is a topic. A listener
plays what has come with a short buffer; what is not there in time is a gap in what is heard. Packets that
come later still complete the file, where silence stands for those that never come. A source that falls
silent has vanished: then the listener ends with what it has (`--vanish` shows it).

Reported: goodput (packets that came, of those sent), the longest gap in what was heard, and the file.
"""

import argparse
import asyncio
import sys
import time
import wave
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from roamcast.errors import InputError, RoamcastError
from roamcast.event import Event, Publication, Value

PACKET_BYTES = 4_096  # as in the work
PACKETS_MAX = 100_000
BUFFER_S = 0.5  # a listener begins to play so long after the first packet
SCENARIO = Path(__file__).parent / "line.toml"
SOURCE = 0  # the node that streams, in simulation and emulation


class Form(NamedTuple):
    """Of the samples: what a WAV file's header says."""

    rate: int
    channels: int
    width: int  # octets of a sample

    @property
    def frame_bytes(self) -> int:
        return self.channels * self.width


class Packet(NamedTuple):
    number: int
    of: int
    form: Form
    samples: bytes

    @property
    def seconds(self) -> float:
        """How long a whole packet plays."""
        return PACKET_BYTES // self.form.frame_bytes / self.form.rate

    def publication(self, name: str, lifetime: float) -> Publication:
        attributes: dict[str, Value] = {"packet": self.number, "of": self.of, **self.form._asdict()}
        return Publication(attributes, self.samples, f"audio/{name}", lifetime=round(lifetime * 1e6))

    @classmethod
    def of_event(cls, event: Event) -> "Packet | None":
        """None for what is no packet of a stream, whoever published it."""
        names = ("packet", "of", *Form._fields)
        values = [event.attributes.get(name) for name in names]
        if not all(type(value) is int for value in values):
            return None
        number, of, rate, channels, width = (int(str(value)) for value in values)
        possible = 0 <= number < of <= PACKETS_MAX and 1 <= rate <= 768_000
        if not possible or not 1 <= channels <= 8 or width not in (1, 2, 3, 4):
            return None
        return cls(number, of, Form(rate, channels, width), event.payload[:PACKET_BYTES])


def packets_of(path: Path) -> list[Packet]:
    """A WAV file in packets; `InputError` in one line for anything else."""
    try:
        with wave.open(str(path), "rb") as file:
            form = Form(file.getframerate(), file.getnchannels(), file.getsampwidth())
            size = PACKET_BYTES // form.frame_bytes * form.frame_bytes
            samples = file.readframes(PACKETS_MAX * size // form.frame_bytes)
    except (OSError, EOFError, wave.Error) as error:
        raise InputError(str(path), f"is no WAV file that can be read: {error}") from None
    pieces = [samples[at : at + size] for at in range(0, len(samples), size)]
    if not pieces:
        raise InputError(str(path), "holds no sound")
    return [Packet(number, len(pieces), form, piece) for number, piece in enumerate(pieces)]


class Listener:
    """Puts a stream together and notes what a player would have missed."""

    def __init__(self, buffer: float = BUFFER_S) -> None:
        self._buffer = buffer
        self._packets: dict[int, tuple[float, Packet]] = {}  # with the time of arrival
        self._begin: float | None = None  # when the player would have begun with packet 0

    def on_event(self, event: Event, at: float) -> None:
        packet = Packet.of_event(event)
        if packet is None or packet.number in self._packets:
            return
        known = self.first
        if known is not None and (packet.of, packet.form) != (known.of, known.form):
            return  # of another stream under the same name
        if self._begin is None:
            self._begin = at + self._buffer - packet.number * packet.seconds
        self._packets[packet.number] = (at, packet)

    @property
    def first(self) -> Packet | None:
        return next(iter(self._packets.values()))[1] if self._packets else None

    @property
    def is_whole(self) -> bool:
        return self.first is not None and len(self._packets) == self.first.of

    def report(self, name: str) -> str:
        first = self.first
        if first is None or self._begin is None:
            return f"{name}: nothing came"
        begin = self._begin
        gap = longest = late = 0
        for number in range(first.of):
            came = self._packets.get(number)
            in_time = came is not None and came[0] <= begin + number * first.seconds
            gap = 0 if in_time else gap + 1
            late += came is not None and not in_time
            longest = max(longest, gap)
        end = (
            ""
            if first.of - 1 in self._packets
            else f", the source fell silent after packet {max(self._packets)}"
        )
        came_in_all = len(self._packets)
        return (
            f"{name}: {came_in_all} of {first.of} packets (goodput {came_in_all / first.of:.1%}), "
            f"{late} of them late, longest gap {longest * first.seconds:.1f} s{end}"
        )

    def write(self, path: Path) -> None:
        """The file, with silence where packets are missing."""
        first = self.first
        if first is None:
            return
        size = PACKET_BYTES // first.form.frame_bytes * first.form.frame_bytes
        silence = bytes([128 if first.form.width == 1 else 0]) * size
        with wave.open(str(path), "wb") as file:
            file.setframerate(first.form.rate)
            file.setnchannels(first.form.channels)
            file.setsampwidth(first.form.width)
            for number in range(first.of):
                file.writeframes(self._packets[number][1].samples if number in self._packets else silence)


# Live: one device each.


async def send(packets: list[Packet], name: str, socket: Path, lifetime: float) -> None:
    from roamcast.client import connect

    async with connect(socket, name="audio source") as client:
        begin = time.monotonic()
        for packet in packets:
            await asyncio.sleep(max(begin + packet.number * packet.seconds - time.monotonic(), 0))
            await client.send(packet.publication(name, lifetime))


async def receive(name: str, socket: Path, patience: float, listener: Listener) -> Listener:
    """Until the stream is whole, or its source has been silent for so long that it has vanished."""
    from roamcast.client import connect

    async with (
        connect(socket, name="audio listener") as client,
        client.subscribe(topic=f"audio/{name}") as messages,
    ):
        wait = None  # for the first packet as long as it takes
        while not listener.is_whole:
            try:
                message = await messages.next(wait)
            except TimeoutError:
                break
            listener.on_event(message.event, time.monotonic())
            wait = patience
    return listener


# Five nodes on one machine.


def simulate(packets: list[Packet], lifetime: float, vanish: float | None) -> dict[int, Listener]:
    """In virtual time. What arrives is read from the trace, as every measurement is."""
    from roamcast.runtime.sim import Simulation
    from roamcast.trace import Delivered
    from roamcast.units import micros, seconds

    scenario = _scenario(packets, vanish)
    simulation = Simulation(scenario)
    sent: dict[tuple[int, int], Event] = {}

    def publish(packet: Packet) -> None:
        node = simulation.nodes[SOURCE]
        if node is not None:
            event = node.publish(packet.publication("stream", lifetime))
            sent[event.publisher, event.sequence] = event

    for packet in packets:
        simulation.engine.at(micros(START_S + packet.number * packet.seconds), publish, packet)
    simulation.run()
    listeners = {node: Listener() for node in range(scenario.nodes) if node != SOURCE}
    for delivery in simulation.trace.of(Delivered):
        listeners[delivery.node].on_event(sent[delivery.publisher, delivery.sequence], seconds(delivery.t))
    return listeners


async def emulate(
    packets: list[Packet], lifetime: float, patience: float, vanish: float | None
) -> dict[int, Listener]:
    """In real time, with a `roamcast node` process for each node, through their sockets."""
    from roamcast.client import ClientError
    from roamcast.runtime.emulate.programs import play_on

    scenario = _scenario(packets, vanish)
    listeners = {node: Listener() for node in range(scenario.nodes) if node != SOURCE}

    async def play(sockets: list[Path]) -> None:
        await asyncio.sleep(START_S)
        listening = [
            asyncio.ensure_future(receive("stream", sockets[node], patience, listener))
            for node, listener in listeners.items()
        ]
        await asyncio.sleep(SUBSCRIBED_S)
        with suppress(*([] if vanish is None else [ClientError])):
            await send(packets, "stream", sockets[SOURCE], lifetime)
        await asyncio.wait(listening, timeout=patience)
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)

    await play_on(scenario, play)
    return listeners


START_S = 5.0  # the tree has formed
SUBSCRIBED_S = 1.0  # what all want is known


def _scenario(packets: list[Packet], vanish: float | None) -> Any:
    """`vanish`: seconds after which the source's node is gone."""
    from roamcast.scenario import load_scenario
    from roamcast.scenario.load import scenario_from

    tables = load_scenario(SCENARIO).to_dict()
    tables["scenario"]["duration"] = START_S + SUBSCRIBED_S + len(packets) * packets[0].seconds + 10.0
    if vanish is not None:
        tables["fault"] = [*tables["fault"], {"at": START_S + vanish, "kind": "crash", "nodes": [SOURCE]}]
    return scenario_from(tables)


def _report(listeners: dict[int, Listener], folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for node, listener in listeners.items():
        listener.write(folder / f"node-{node}.wav")
        say(listener.report(f"node {node}"))
    return 0 if all(listener.is_whole for listener in listeners.values()) else 1


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except RoamcastError as error:
        sys.stderr.write(f"stream: {error}\n")
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 1


def _send(options: argparse.Namespace) -> int:
    packets = packets_of(options.file)
    asyncio.run(send(packets, options.name or options.file.stem, options.socket, options.lifetime))
    say(f"{len(packets)} packets sent")
    return 0


def _receive(options: argparse.Namespace) -> int:
    listener = asyncio.run(receive(options.name, options.socket, options.patience, Listener()))
    listener.write(options.file)
    say(listener.report(options.name))
    return 0 if listener.is_whole else 1


def _simulate(options: argparse.Namespace) -> int:
    return _report(simulate(packets_of(options.file), options.lifetime, options.vanish), options.folder)


def _emulate(options: argparse.Namespace) -> int:
    packets = packets_of(options.file)
    listening = emulate(packets, options.lifetime, options.patience, options.vanish)
    return _report(asyncio.run(listening), options.folder)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], *places: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name)
        made.set_defaults(run=run)
        for place in places:
            made.add_argument(place, type=str if place == "name" else Path)
        return made

    sending = command("send", _send, "file")
    sending.add_argument("--name", help="of the source; default: the file's")
    receiving = command("receive", _receive, "name", "file")
    simulating = command("simulate", _simulate, "file", "folder")
    emulating = command("emulate", _emulate, "file", "folder")
    for each in (sending, receiving):
        each.add_argument("--socket", type=Path, default=Path("roamcast.sock"))
    for each in (sending, simulating, emulating):
        each.add_argument("--lifetime", type=float, default=30.0, help="seconds to keep a packet; 0: none")
    for each in (simulating, emulating):
        each.add_argument("--vanish", type=float, help="seconds after which the source's node is gone")
    for each in (receiving, emulating):
        each.add_argument("--patience", type=float, default=8.0, help="seconds of silence that end a stream")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
