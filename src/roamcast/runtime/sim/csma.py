"""The shared medium: carrier sense, backoff, collisions at the receiver (after IEEE 802.11 DCF).

A node with a frame waits until the medium has been idle for DIFS, then counts down a random number of
slots, frozen while it senses anyone, and sends. A receiver gets a frame only if nothing else that it
hears overlaps it and it does not send itself: two senders that do not hear each other (hidden nodes)
collide there. Two nodes that start within the carrier-sense time of each other collide too.
Unicast frames are acknowledged after SIFS and repeated with a doubled window; broadcast frames are
sent once and nobody answers.

A node may sense more nodes than it receives (`sense`): those freeze its countdown, but their frames disturb
no reception. Where the two ranges are the same, two neighbours of a receiver are hidden from each other far
more often than in simulators that sense at twice the range.

Left out: RTS/CTS, capture of the stronger frame, disturbance from beyond the reception range, rate
adaptation.

Sets of nodes are integers (see `links`): the cost of a transmission grows with the number of other
transmissions on the air at that moment, not with the number of nodes.
"""

from random import Random
from typing import Self

from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import Air, Job, Medium, SendQueue
from roamcast.streams import stream
from roamcast.trace import DropReason, Trace
from roamcast.units import SECOND, Micros, NodeId, micros
from roamcast.world.radio import Csma

CARRIER_SENSE: Micros = 15  # a node that starts this soon after another cannot have sensed it (DSSS, CCA)


class Station:
    """One node's access to the medium."""

    __slots__ = (
        "access_at",
        "access_number",
        "bit",
        "counting_from",
        "idle_since",
        "job",
        "queue",
        "random",
        "ready_at",
        "slots",
        "window",
    )

    def __init__(self, node: NodeId, queue: SendQueue, random: Random, window: int) -> None:
        self.bit = 1 << node
        self.queue = queue
        self.random = random
        self.job: Job | None = None  # the frame whose turn it is
        self.window = window  # the contention window, in slots
        self.slots = 0  # still to count down
        self.counting_from: Micros = 0
        self.access_at: Micros = 0
        self.access_number = 0  # of the valid access action; a freeze makes earlier ones void
        self.idle_since: Micros = 0  # since when this node senses nobody
        self.ready_at: Micros = 0  # end of the countdown that follows each own transmission


class Transmission:
    """What is on the air. `heard_by` is fixed at the start; `clean` shrinks with every collision."""

    __slots__ = (
        "acknowledges",
        "airtime",
        "began",
        "bit",
        "clean",
        "cut_off",
        "heard_by",
        "job",
        "sender",
        "sensed_by",
    )

    def __init__(
        self,
        sender: NodeId,
        bit: int,
        job: Job,
        began: Micros,
        airtime: Micros,
        heard_by: int,
        sensed_by: int,
        acknowledges: bool,
    ) -> None:
        self.sender = sender
        self.bit = bit
        self.job = job
        self.began = began
        self.airtime = airtime
        self.heard_by = heard_by
        self.sensed_by = sensed_by  # the nodes that are busy because of it, its sender included
        self.clean = heard_by
        self.acknowledges = acknowledges
        self.cut_off = False  # its sender crashed: nobody gets the rest


class CsmaMedium(Medium):
    def __init__(
        self,
        engine: Engine,
        links: RadioLinks,
        sensed: RadioLinks,
        trace: Trace,
        random: Random,
        radio: Csma,
        seed: int,
    ) -> None:
        super().__init__(engine, links, trace, random, radio.loss)
        self._sensed = sensed
        self._bitrate = radio.bitrate
        self._header = radio.header
        self._preamble = micros(radio.preamble)
        self._slot = micros(radio.slot)
        self._sifs = micros(radio.sifs)
        self._difs = micros(radio.difs)
        self._window_min = radio.cw_min
        self._window_max = radio.cw_max
        self._retries = radio.retries
        self._acknowledgement = self._preamble + round(
            radio.acknowledgement * 8 * SECOND / radio.basic_bitrate
        )
        # How long a sender waits for an acknowledgement before it tries again.
        self._acknowledgement_timeout = self._sifs + self._acknowledgement + self._slot
        self._stations = [
            Station(node, SendQueue(radio.queue), stream(seed, "csma", node), radio.cw_min)
            for node in range(links.nodes)
        ]
        self._on_air: list[Transmission] = []
        self._busy = 0  # the nodes that send or sense somebody
        self._counting = 0  # the stations that count down
        self._waiting = 0  # the stations that have a frame and sense somebody

    @classmethod
    def of(cls, air: Air, radio: Csma) -> Self:
        return cls(air.engine, air.links, air.sensed, air.trace, air.random, radio, air.seed)

    def send(self, job: Job) -> None:
        station = self._stations[job.sender]
        if station.job is not None:
            refused = station.queue.put(job)
            if refused is not None:
                self._give_up(refused, DropReason.QUEUE_FULL)
            return
        station.job = job
        now = self._engine.now
        rested = now >= station.idle_since + self._difs and now >= station.ready_at
        # IEEE 802.11: a frame that finds the medium idle is sent at once; any other draws a backoff.
        at_once = rested and not self._busy & station.bit
        self._contend(station, 0 if at_once else self._draw(station))

    def forget(self, node: NodeId) -> None:
        station = self._stations[node]
        station.access_number += 1
        self._counting &= ~station.bit
        self._waiting &= ~station.bit
        lost = ([station.job] if station.job else []) + station.queue.drain()
        station.job = None
        station.window = self._window_min
        for transmission in self._on_air:
            if transmission.sender == node:
                transmission.cut_off = True
        for job in lost:
            self._give_up(job, DropReason.CRASHED)

    # Access to the medium: contend, be frozen, resume, transmit.

    def _draw(self, station: Station) -> int:
        return int(station.random.random() * (station.window + 1))

    def _contend(self, station: Station, slots: int) -> None:
        station.slots = slots
        if self._busy & station.bit:
            self._waiting |= station.bit
        else:
            self._count_down(station)

    def _count_down(self, station: Station) -> None:
        now = self._engine.now
        # If the medium has been idle for DIFS already, the countdown begins now.
        station.counting_from = max(now, station.idle_since + self._difs)
        station.access_at = station.counting_from + station.slots * self._slot
        station.access_number += 1
        self._counting |= station.bit
        self._engine.at(station.access_at, self._access, (station, station.access_number))

    def _freeze(self, sensed_by: int) -> None:
        """A node began to send: those who sense it stop counting, unless they send too soon to notice."""
        now = self._engine.now
        for node in self._members[sensed_by & self._counting]:
            station = self._stations[node]
            if station.access_at - now <= CARRIER_SENSE:
                continue
            if now > station.counting_from:
                station.slots -= (now - station.counting_from) // self._slot
            station.access_number += 1
            self._counting &= ~station.bit
            self._waiting |= station.bit

    def _access(self, access: tuple[Station, int]) -> None:
        station, number = access
        if station.access_number != number or station.job is None:
            return
        self._counting &= ~station.bit
        job = station.job
        octets = len(job.frame.payload) + self._header
        airtime = self._preamble + round(octets * 8 * SECOND / self._bitrate)
        self._transmit(station.bit, job, job.sender, airtime, acknowledges=False)

    def _transmit(self, bit: int, job: Job, sender: NodeId, airtime: Micros, *, acknowledges: bool) -> None:
        heard_by = self._links.reach[sender]
        sensed_by = self._sensed.reach[sender] | heard_by | bit
        transmission = Transmission(
            sender, bit, job, self._engine.now, airtime, heard_by, sensed_by, acknowledges
        )
        deaf = heard_by | bit  # these receive nothing else during this transmission
        for other in self._on_air:
            other.clean &= ~deaf
            transmission.clean &= ~(other.heard_by | other.bit)
        self._on_air.append(transmission)
        self._busy |= sensed_by
        if sensed_by & self._counting:
            self._freeze(sensed_by)
        self._engine.at(self._engine.now + airtime, self._end, transmission)

    # The end of a transmission.

    def _end(self, transmission: Transmission) -> None:
        self._on_air.remove(transmission)
        now = self._engine.now
        busy = 0
        for other in self._on_air:
            busy |= other.sensed_by
        self._busy = busy
        stations = self._stations
        rests = transmission.sensed_by & ~busy
        for node in self._members[rests]:
            stations[node].idle_since = now
        if transmission.acknowledges:
            self._acknowledged(transmission)
        else:
            self._arrive(transmission)
        thawed = rests & self._waiting
        if thawed:
            self._waiting &= ~thawed
            for node in self._members[thawed]:
                self._count_down(stations[node])

    def _arrive(self, transmission: Transmission) -> None:
        job = transmission.job
        heard_by = transmission.heard_by
        # If the link broke during the frame, the frame is lost.
        still_heard_by = 0 if transmission.cut_off else self._links.reach[job.sender]
        received = self._without_losses(transmission.clean & still_heard_by)
        collided = heard_by & ~transmission.clean
        self._record(
            job,
            transmission.began,
            transmission.airtime,
            received,
            collided,
            heard_by & ~collided & ~received,
        )
        station = self._stations[job.sender]
        if station.job is not job:
            return  # its sender crashed meanwhile
        if job.to is None:
            self._finish(station)
            self._hand_up(job, received)
            return
        got_it = received & 1 << job.to
        if got_it:
            self._engine.at(self._engine.now + self._sifs, self._acknowledge, job)
        self._engine.at(
            self._engine.now + self._acknowledgement_timeout, self._no_answer, (station, job, job.attempt)
        )
        if got_it and not job.arrived:
            job.arrived = True
            self._hand_up(job, got_it)

    def _finish(self, station: Station) -> None:
        """The frame is finished. The next one contends, after a countdown in any case (IEEE 802.11)."""
        station.job = None
        station.window = self._window_min
        slots = self._draw(station)
        station.ready_at = self._engine.now + self._difs + slots * self._slot
        following = station.queue.take()
        if following is not None:
            station.job = following
            self._contend(station, slots)

    # Unicast: acknowledgements and repeats.

    def _acknowledge(self, job: Job) -> None:
        assert job.to is not None
        if self._links.alive >> job.to & 1:
            self._transmit(1 << job.to, job, job.to, self._acknowledgement, acknowledges=True)

    def _acknowledged(self, transmission: Transmission) -> None:
        job = transmission.job
        station = self._stations[job.sender]
        heard = transmission.clean & station.bit and not transmission.cut_off
        if station.job is job and heard:
            self._finish(station)

    def _no_answer(self, awaited: tuple[Station, Job, int]) -> None:
        station, job, attempt = awaited
        if station.job is not job or job.attempt != attempt:
            return
        if attempt > self._retries:
            reachable = self._links.hears(job.sender, job.to) if job.to is not None else True
            self._finish(station)
            self._give_up(job, DropReason.RETRIES if reachable else DropReason.NOT_IN_RANGE)
            return
        job.attempt += 1
        station.window = min(2 * station.window + 1, self._window_max)
        self._contend(station, self._draw(station))
