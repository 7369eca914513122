"""The ether: one process that moves Ethernet frames between the TAP devices of all nodes.

It plays the contact plan and the faults on the clock and hands each frame to the radio model of the scenario.
Before time zero nobody hears anybody; then the plan begins. Group addresses reach everyone in range, other
frames the owner of the address, if it is in range. Address resolution and TCP work, because the nodes' own
kernels do them.

What is exact and what is not: the radio model computes on the instants at which the ether read the frames,
so airtime, carrier sense and collisions follow from those exactly. Between a node's `send` and the ether's
`read`, and between a frame's computed end and its arrival in the receiver's kernel, there is an unknown delay
of the machine. Frames are read one after the other, some microseconds apart. So two nodes that start at the
same instant get different instants here and do not collide because of it; hidden nodes do collide.

The program: `python -m roamcast.runtime.emulate.ether SCENARIO JOURNAL TAP…`. It prints `ready` when it
listens, and reads the clock's zero in microseconds from standard input; then faults by hand, a line each.
"""

import gc
import os
import select
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from roamcast.host import Channel, Frame, Kind
from roamcast.runtime.emulate.namespaces import mac_of
from roamcast.runtime.emulate.real_time import (
    RealTimeEngine,
    ask_for_exact_timers,
    ask_for_priority,
    monotonic,
    percentile,
    seconds_until,
)
from roamcast.runtime.emulate.stage import PartJournal, read_scenario
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.medium import Job, Medium, MediumParts, Receive
from roamcast.runtime.sim.playback import Playback
from roamcast.scenario.model import Scenario, model_name
from roamcast.scenario.workload import FaultPlan
from roamcast.streams import stream
from roamcast.trace import DropReason, Trace
from roamcast.units import Micros, NodeId
from roamcast.world.radio import RADIOS, CsmaRadio

FRAME_BYTES_MAX = 65_536
PIPE_BYTES = 65_536  # the capacity of a pipe
READY = b"ready\n"
FRAMES_AT_ONCE = 64  # read from one device in a row; chosen by us: fewer calls against delay for the others

NONE = -1
"""The addressee of a unicast frame to a device that does not exist."""
ETHERNET = struct.Struct("!6s6sH")
ETHERTYPES = {0x0806: "arp", 0x86DD: "ipv6"}
IPV4 = 0x0800
IPV4_HEADER_MIN = 20
PROTOCOLS = {1: "icmp", 2: "igmp", 6: "tcp", 17: "udp"}
FRAGMENT_OFFSET = 0x1FFF
UDP_HEADER = 8

CHANNEL = Channel.STRATEGY  # the models need one; the ether does not distinguish channels
HEADERS_CARRIED = 14 + 20 + 8  # Ethernet, IPv4, UDP


class EthernetFrame(NamedTuple):
    to: NodeId | None  # None: a group address, for everyone in range
    protocol: str
    datagram: int | None = None  # payload octets, where a UDP datagram begins


class Reader:
    """Knows the MAC addresses of all nodes."""

    def __init__(self, nodes: int) -> None:
        self._nodes = {mac_of(node): node for node in range(nodes)}

    def read(self, frame: bytes) -> EthernetFrame | None:
        """Read the addresses of a frame; None for what is no Ethernet frame."""
        if len(frame) < ETHERNET.size:
            return None
        destination, _, ethertype = ETHERNET.unpack_from(frame)
        to = None if destination[0] & 1 else self._nodes.get(destination, NONE)
        if ethertype != IPV4 or len(frame) < ETHERNET.size + IPV4_HEADER_MIN:
            return EthernetFrame(to, ETHERTYPES.get(ethertype, "other"))
        fragment, protocol = struct.unpack_from("!6xHxB", frame, ETHERNET.size)
        name = PROTOCOLS.get(protocol, "other")
        if name != "udp" or fragment & FRAGMENT_OFFSET:
            return EthernetFrame(to, name)
        at = ETHERNET.size + (frame[ETHERNET.size] & 15) * 4
        if len(frame) < at + UDP_HEADER:
            return EthernetFrame(to, name)
        (length,) = struct.unpack_from("!4xH", frame, at)
        return EthernetFrame(to, name, max(length - UDP_HEADER, 0))


class EtherJob(Job):
    """One Ethernet frame, numbered in the order in which the ether took them."""

    __slots__ = ("ether", "number", "packet", "taken")

    def __init__(
        self, ether: "Ether", number: int, sender: NodeId, packet: EthernetFrame, frame: bytes
    ) -> None:
        super().__init__(sender, CHANNEL, Frame(frame, Kind.DATA, packet.protocol), packet.to, None)
        self.ether = ether
        self.number = number
        self.taken = ether.engine.now
        self.packet = packet


class _Carrying(Medium):
    """Writes what happens to a frame into the ether's journal, instead of trace records. As with real Wi-Fi,
    a node's kernel does not learn that a unicast frame was given up: the protocols above must notice."""

    def _record(
        self, job: Job, began: Micros, airtime: Micros, received: int, collided: int, faded: int
    ) -> None:
        assert isinstance(job, EtherJob)
        addressees = ~0 if job.to is None else 1 << job.to
        job.ether.write_attempt(
            job, began, airtime, *(found & addressees for found in (received, collided, faded))
        )

    def _give_up(self, job: Job, reason: DropReason) -> None:
        assert isinstance(job, EtherJob)
        job.ether.write_given_up(job, reason)


def medium_of(scenario: Scenario, engine: Engine, playback: Playback) -> Medium:
    """The simulator's radio model itself, but for what it records. One correction: `csma` in a simulation
    adds to each payload what link, network and transport layers add in the field. Here the frame has its own
    Ethernet, IPv4 and UDP or TCP headers, so only the rest is added."""
    radio = scenario.world.radio
    model: type[Medium] = RADIOS.maker(model_name(radio))
    carrying: type[_Carrying] = type(f"Carrying{model.__name__}", (_Carrying, model), {})
    if isinstance(radio, CsmaRadio):
        radio = msgspec.structs.replace(radio, header=max(radio.header - HEADERS_CARRIED, 0))
    random, unused = stream(scenario.seed, "radio"), Trace()
    parts = MediumParts(engine, playback.links, playback.sensed, unused, random, scenario.seed)
    return carrying.of(parts, radio)


class Lateness(msgspec.Struct, frozen=True):
    """How much later than planned the ether played, microseconds."""

    median: Micros
    p99: Micros
    worst: Micros


class Ether:
    def __init__(self, scenario: Scenario, taps: list[int], journal: PartJournal) -> None:
        assert len(taps) == scenario.nodes
        self._duration = scenario.duration
        self._taps = taps
        self._senders = {tap: node for node, tap in enumerate(taps)}
        self._journal = journal
        self._reader = Reader(scenario.nodes)
        self._zero = monotonic()
        self._frames = 0
        self.engine = RealTimeEngine(self._clock)
        self._playback = Playback(scenario, self.engine, journal.record, self)
        self.links = self._playback.links
        self._medium = medium_of(scenario, self.engine, self._playback)
        self._receivers = [self._receiver(tap) for tap in taps]
        self._medium.receivers[CHANNEL] = list(self._receivers)

    def wait(self, lines: int) -> None:
        """Read zero from the descriptor `lines` and wait until then; no frame is carried meanwhile."""
        zero: Micros | None = None
        while zero is None or monotonic() < zero:
            left = seconds_until(zero, monotonic())
            ready, _, _ = select.select([*self._taps, *([lines] if zero is None else [])], [], [], left)
            for number in ready:
                if number == lines:
                    line = os.read(lines, 100)
                    if not line:
                        raise SystemExit(1)  # the conductor is gone
                    zero = int(line)
                else:
                    self._discard(number)
        self._zero = zero

    def play(self, lines: int) -> Lateness:
        """From zero to the end of the scenario. Faults by hand come from the descriptor `lines`."""
        self.engine.beat_until(self._duration)
        sources = [*self._taps, lines]
        while (now := self._clock()) < self._duration:
            self.engine.run(now)
            left = seconds_until(self.engine.next_due(), self._clock())
            ready, _, _ = select.select(sources, [], [], left)
            for source in ready:
                if source != lines:
                    self._take(source)
                elif not self._take_faults(os.read(lines, PIPE_BYTES)):
                    sources.remove(lines)
        self.engine.run(self._duration)
        delays = self.engine.delays
        return Lateness(percentile(delays, 0.5), percentile(delays, 0.99), max(delays, default=0))

    def _take_faults(self, lines: bytes) -> bool:
        """False at the end of the input. All that is in the pipe is read at once, so lines are whole."""
        for line in lines.splitlines():
            fault = msgspec.json.decode(line, type=FaultPlan)
            self.engine.run(self._clock())
            self._playback.happen(fault)
        return bool(lines)

    # Frames.

    def _take(self, tap: int) -> None:
        sender = self._senders[tap]
        with suppress(BlockingIOError):
            for _ in range(FRAMES_AT_ONCE):
                frame = os.read(tap, FRAME_BYTES_MAX)
                packet = self._reader.read(frame)
                if packet is None or not self.links.alive >> sender & 1:
                    continue
                self.engine.run(self._clock())
                self._send(sender, packet, frame)

    def _send(self, sender: NodeId, packet: EthernetFrame, frame: bytes) -> None:
        self._frames += 1
        job = EtherJob(self, self._frames, sender, packet, frame)
        if packet.to == NONE:
            self.write_given_up(job, DropReason.NOT_IN_RANGE)
        else:
            self._medium.send(job)

    def _receiver(self, tap: int) -> Receive:
        def receive(_: NodeId, frame: bytes) -> None:
            # A device whose queue is full or that is going down loses the frame, as a radio would.
            with suppress(OSError):
                os.write(tap, frame)

        return receive

    def _discard(self, tap: int) -> None:
        with suppress(BlockingIOError):
            while True:
                os.read(tap, FRAME_BYTES_MAX)

    # What happened.

    def write_attempt(
        self, job: EtherJob, began: Micros, airtime: Micros, received: int, collided: int, faded: int
    ) -> None:
        sets = [self.links.members[nodes] for nodes in (received, collided, faded)]
        self._write(job, began, job.to, len(job.frame.payload), job.attempt, airtime, *sets)

    def write_given_up(self, job: EtherJob, reason: DropReason) -> None:
        to = None if job.to in (None, NONE) else job.to
        self._write(job, self.engine.now, to, 0, 0, 0, (), (), (), reason.value)

    def _write(self, job: EtherJob, t: Micros, to: NodeId | None, *values: object) -> None:
        """A line of `collect.AirAttempt`."""
        packet = job.packet
        begins = (job.number, job.taken, t, job.sender, to, packet.protocol, packet.datagram)
        self._journal.write("air", *begins, *values)

    # Inputs from the playback.

    def on_link(self, sender: NodeId, receiver: NodeId, up: bool) -> None:
        pass  # the nodes must notice by themselves, as in the field

    def on_crash(self, node: NodeId) -> None:
        self.links.crash(node)
        self._medium.forget(node)
        self._medium.receivers[CHANNEL][node] = None

    def on_restart(self, node: NodeId) -> None:
        self.links.restart(node)
        self._discard(self._taps[node])
        self._medium.receivers[CHANNEL][node] = self._receivers[node]

    def _clock(self) -> Micros:
        return monotonic() - self._zero


def main(arguments: list[str]) -> int:
    scenario = read_scenario(Path(arguments[0]))
    journal = PartJournal(Path(arguments[1]))
    ether = Ether(scenario, [int(number) for number in arguments[2:]], journal)
    ask_for_exact_timers()
    ask_for_priority()
    gc.disable()  # nothing here makes reference cycles, and a collection would delay frames
    os.write(sys.stdout.fileno(), READY)
    ether.wait(sys.stdin.fileno())
    lateness = ether.play(sys.stdin.fileno())
    journal.write("lateness", lateness.median, lateness.p99, lateness.worst)
    journal.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
