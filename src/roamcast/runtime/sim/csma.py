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

Sets of nodes are integers (see `links`), so a transmission costs a few operations on such sets. It knows
which others on the air are near it, and is compared with all of them only where somebody who senses it is
busy already: elsewhere in a large network far more is on the air than here.
"""

from collections.abc import Callable
from random import Random
from typing import Self

from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import Job, Medium, MediumParts, SendQueue
from roamcast.streams import stream
from roamcast.trace import DropReason, Trace
from roamcast.units import SECOND, Micros, NodeId, micros
from roamcast.world.radio import CsmaRadio

NEVER: Micros = -1
CARRIER_SENSE: Micros = 15  # a node that starts this soon after another cannot have sensed it (DSSS, CCA)


class Station:
    """One node's access to the medium."""

    __slots__ = (
        "access_at",
        "bit",
        "counting_from",
        "job",
        "queue",
        "random",
        "ready_at",
        "slots",
        "window",
    )

    def __init__(self, bit: int, queue: SendQueue, random: Callable[[], float], window: int) -> None:
        self.bit = bit
        self.queue = queue
        self.random = random  # draws from the station's own stream
        self.job: Job | None = None  # the frame whose turn it is
        self.window = window  # the contention window, in slots
        self.slots = 0  # still to count down
        self.counting_from: Micros = 0
        self.access_at: Micros = NEVER  # an access action of any other time is void: it was frozen
        self.ready_at: Micros = 0  # end of the countdown that follows each own transmission


class Transmission:
    """What is on the air. `heard_by` is fixed at the start; `clean` shrinks with every collision."""

    __slots__ = ("began", "clean", "cut_off", "deaf", "heard_by", "job", "near", "sender", "sensed_by")

    sender: NodeId  # of the frame, or of its acknowledgement
    job: Job
    began: Micros
    heard_by: int
    clean: int
    deaf: int  # the nodes that receive nothing else meanwhile, its sender included
    sensed_by: int  # the nodes that are busy because of it, its sender included
    cut_off: bool  # its sender crashed: nobody gets the rest

    def __init__(self) -> None:
        self.near: list[Transmission] = []  # on the air and sensed by one of the same nodes


class CsmaMedium(Medium):
    def __init__(
        self,
        engine: Engine,
        links: RadioLinks,
        sensed: RadioLinks,
        trace: Trace,
        random: Random,
        radio: CsmaRadio,
        seed: int,
    ) -> None:
        super().__init__(engine, links, trace, random, radio.loss)
        self._sensed = sensed
        self._airtime = radio.airtime
        self._slot = micros(radio.slot)
        self._sifs = micros(radio.sifs)
        self._difs = micros(radio.difs)
        self._window_min = radio.cw_min
        self._window_max = radio.cw_max
        self._retries = radio.retries
        self._acknowledgement = micros(radio.preamble) + round(
            radio.acknowledgement * 8 * SECOND / radio.basic_bitrate
        )
        # How long a sender waits for an acknowledgement before it tries again.
        self._acknowledgement_timeout = self._sifs + self._acknowledgement + self._slot
        self._stations = [
            Station(alone, SendQueue(radio.queue), stream(seed, "csma", node).random, radio.cw_min)
            for node, alone in enumerate(links.alone)
        ]
        self._on_air: dict[Transmission, None] = {}  # a set in the order of its members' beginning
        self._spare: list[Transmission] = []  # whose end has come: an object is used again faster than made
        self._busy = 0  # the nodes that send or sense somebody
        self._counting = 0  # the stations that count down
        self._waiting = 0  # the stations that have a frame and sense somebody
        # When which nodes will have sensed nobody for DIFS, in that order. What is in the past is of no
        # consequence, so nothing has to be kept for each node.
        self._idle_soon: list[tuple[Micros, int]] = [(self._difs, (1 << links.nodes) - 1)]
        self._airtimes: dict[int, Micros] = {}  # by octets of payload
        self._when_access, self._when_end = self._access, self._end  # made once, see `SimHost`

    @classmethod
    def of(cls, air: MediumParts, radio: CsmaRadio) -> Self:
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
        # IEEE 802.11: a frame that finds the medium idle is sent at once; any other draws a backoff.
        if now < station.ready_at or self._busy & station.bit or self._idle_from(station.bit) > now:
            self._contend(station, self._draw(station))
        else:
            station.slots = 0
            self._count_down(station, now)

    def airtime(self, octets: int) -> Micros:
        return self._on_air_for(octets) + self._difs + self._window_min * self._slot // 2

    def forget(self, node: NodeId) -> None:
        station = self._stations[node]
        station.access_at = NEVER
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
        draw = station.random
        return int(draw() * (station.window + 1))

    def _contend(self, station: Station, slots: int) -> None:
        station.slots = slots
        if self._busy & station.bit:
            self._waiting |= station.bit
        else:
            self._count_down(station, self._idle_from(station.bit))

    def _idle_from(self, bit: int) -> Micros:
        """When a node's medium will have been idle for DIFS; now, if it has been already."""
        now = self._engine.now
        for idle_from, nodes in reversed(self._idle_soon):
            if nodes & bit:
                return max(now, idle_from)
        return now

    def _count_down(self, station: Station, begin: Micros) -> None:
        station.counting_from = begin
        station.access_at = access_at = begin + station.slots * self._slot
        self._counting |= station.bit
        self._engine.at(access_at, self._when_access, station)

    def _freeze(self, counting: int) -> None:
        """A node began to send: those who sense it stop counting, unless they send too soon to notice."""
        now = self._engine.now
        stations, slot = self._stations, self._slot
        for node in self._members[counting]:
            station = stations[node]
            if station.access_at - now <= CARRIER_SENSE:
                continue
            if now > station.counting_from:
                station.slots -= (now - station.counting_from) // slot
            station.access_at = NEVER
            self._counting ^= station.bit
            self._waiting |= station.bit

    def _access(self, station: Station) -> None:
        job = station.job
        if station.access_at != self._engine.now or job is None:
            return  # frozen meanwhile
        station.access_at = NEVER
        self._counting ^= station.bit
        self._transmit(station.bit, job, job.sender, self._on_air_for(len(job.frame.payload)))

    def _on_air_for(self, octets: int) -> Micros:
        airtime = self._airtimes.get(octets)
        if airtime is None:
            airtime = self._airtimes[octets] = self._airtime(octets)
        return airtime

    def _transmit(self, bit: int, job: Job, sender: NodeId, airtime: Micros) -> None:
        now = self._engine.now
        links, sensed = self._links, self._sensed
        heard_by = links.reach[sender]
        deaf = heard_by | bit
        sensed_by = deaf if sensed is links else sensed.reach[sender] | deaf
        transmission = self._spare.pop() if self._spare else Transmission()
        transmission.sender, transmission.job, transmission.began = sender, job, now
        transmission.heard_by = transmission.clean = heard_by
        transmission.deaf, transmission.sensed_by = deaf, sensed_by
        transmission.cut_off = False
        busy = self._busy
        if busy & sensed_by:
            for other in self._on_air:
                if other.sensed_by & sensed_by:
                    other.near.append(transmission)
                    transmission.near.append(other)
                    other.clean ^= other.clean & deaf
                    transmission.clean ^= transmission.clean & other.deaf
        self._on_air[transmission] = None
        self._busy = busy | sensed_by
        counting = sensed_by & self._counting
        if counting:
            self._freeze(counting)
        self._engine.at(now + airtime, self._when_end, transmission)

    # The end of a transmission.

    def _end(self, transmission: Transmission) -> None:
        del self._on_air[transmission]
        rests = transmission.sensed_by
        near = transmission.near
        if near:
            for other in near:
                other.near.remove(transmission)
                rests ^= rests & other.sensed_by
            near.clear()
        self._busy ^= rests  # all of them were busy, with this one
        now = self._engine.now
        idle_from = now + self._difs
        idle_soon = self._idle_soon
        idle_soon.append((idle_from, rests))
        while idle_soon[0][0] <= now:
            del idle_soon[0]
        job = transmission.job
        if transmission.sender == job.sender:
            self._arrive(transmission, job, now)
        else:
            self._acknowledged(transmission)
        self._spare.append(transmission)
        thawed = rests & self._waiting
        if thawed:
            self._waiting ^= thawed
            stations = self._stations
            for node in self._members[thawed]:
                self._count_down(stations[node], idle_from)

    def _arrive(self, transmission: Transmission, job: Job, now: Micros) -> None:
        heard_by, clean = transmission.heard_by, transmission.clean
        # If the link broke during the frame, the frame is lost.
        still_heard_by = 0 if transmission.cut_off else self._links.reach[job.sender]
        received = clean & still_heard_by
        if received == heard_by:
            received = heard_by  # one object for many records: a set of 5,000 nodes has 700 octets
        if self._loss:
            received = self._without_losses(received)
        began = transmission.began
        self._record(job, began, now - began, received, heard_by ^ clean, clean ^ received)
        station = self._stations[job.sender]
        if station.job is not job:
            return  # its sender crashed meanwhile
        if job.to is None:
            self._finish(station)
            self._hand_up(job, received)
            return
        got_it = received & self._links.alone[job.to]
        if got_it:
            self._engine.at(now + self._sifs, self._acknowledge, job)
        self._engine.at(now + self._acknowledgement_timeout, self._no_answer, (station, job, job.attempt))
        if got_it and not job.arrived:
            job.arrived = True
            self._hand_up(job, got_it)

    def _finish(self, station: Station) -> None:
        """The frame is finished. The next one contends, after a countdown in any case (IEEE 802.11)."""
        station.job = None
        station.window = self._window_min
        draw = station.random
        slots = int(draw() * (self._window_min + 1))
        station.ready_at = self._engine.now + self._difs + slots * self._slot
        if station.queue.length:
            station.job = station.queue.take()
            self._contend(station, slots)

    # Unicast: acknowledgements and repeats.

    def _acknowledge(self, job: Job) -> None:
        assert job.to is not None
        if self._links.alive >> job.to & 1:
            self._transmit(self._links.alone[job.to], job, job.to, self._acknowledgement)

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
