"""The disk radio: queueing, transmission time, delay and random loss, but no shared medium.

Each node sends its frames one after the other; what different nodes send does not collide. A unicast
frame that is lost or finds its addressee gone is reported to the sender after the delay; there are no
link-layer repeats.
"""

from random import Random
from typing import Self

from mypy_extensions import mypyc_attr

from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import Air, Job, Medium, SendQueue
from roamcast.trace import DropReason, Trace
from roamcast.units import SECOND, Micros, NodeId, micros
from roamcast.world.radio import Disk


@mypyc_attr(allow_interpreted_subclasses=True)  # the emulator's carry frames
class DiskMedium(Medium):
    def __init__(self, engine: Engine, links: RadioLinks, trace: Trace, random: Random, radio: Disk) -> None:
        super().__init__(engine, links, trace, random, radio.loss)
        self._bitrate = radio.bitrate
        self._delay = micros(radio.delay)
        self._queues = [SendQueue(radio.queue) for _ in range(links.nodes)]
        self._sending: list[Job | None] = [None] * links.nodes

    @classmethod
    def of(cls, air: Air, radio: Disk) -> Self:
        return cls(air.engine, air.links, air.trace, air.random, radio)

    def send(self, job: Job) -> None:
        if self._sending[job.sender] is None:
            self._begin(job)
            return
        refused = self._queues[job.sender].put(job)
        if refused is not None:
            self._give_up(refused, DropReason.QUEUE_FULL)

    def forget(self, node: NodeId) -> None:
        current = self._sending[node]
        self._sending[node] = None
        for job in ([current] if current else []) + self._queues[node].drain():
            self._give_up(job, DropReason.CRASHED)

    def _begin(self, job: Job) -> None:
        self._sending[job.sender] = job
        airtime = round(len(job.frame.payload) * 8 * SECOND / self._bitrate)
        self._engine.at(self._engine.now + airtime, self._end, (job, self._engine.now, airtime))

    def _end(self, ended: tuple[Job, Micros, Micros]) -> None:
        job = ended[0]
        if self._sending[job.sender] is not job:
            return  # its sender crashed meanwhile
        self._sending[job.sender] = None
        self._engine.at(self._engine.now + self._delay, self._arrive, ended)
        queue = self._queues[job.sender]
        if queue.length:
            self._begin(queue.take())

    def _arrive(self, ended: tuple[Job, Micros, Micros]) -> None:
        job, began, airtime = ended
        in_range = self._links.reach[job.sender]
        if job.to is not None:
            in_range &= 1 << job.to
        received = self._without_losses(in_range)
        self._record(job, began, airtime, received, 0, in_range & ~received)
        if job.to is not None and not received:
            self._give_up(job, DropReason.RETRIES if in_range else DropReason.NOT_IN_RANGE)
        self._hand_up(job, received)
