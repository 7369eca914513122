"""The one interface of all radio models, and what they share.

A medium takes frames from nodes and, later, hands them to the nodes that receive them. It never calls
into a node from inside `send`: reception and failure are always actions of their own.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple, Self

from roamcast.host import Channel, Frame, Kind, SendFailure
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.links import RadioLinks
from roamcast.trace import Dropped, DropReason, Trace, Transmitted
from roamcast.units import Micros, NodeId, micros
from roamcast.world.radio import DiskRadio

Receive = Callable[[NodeId, bytes], None]
KIND_NAMES = {kind: kind.name.lower() for kind in Kind}
LAYER_NAMES = {channel: channel.name.lower() for channel in Channel}


class Job:
    """One frame that a node wants on the air."""

    __slots__ = ("arrived", "attempt", "channel", "frame", "on_failure", "sender", "to")

    def __init__(
        self,
        sender: NodeId,
        channel: Channel,
        frame: Frame,
        to: NodeId | None,
        on_failure: Callable[[SendFailure], None] | None,
    ) -> None:
        self.sender = sender
        self.channel = channel
        self.frame = frame
        self.to = to
        self.on_failure = on_failure
        self.attempt = 1
        self.arrived = False  # at its addressee; a repeated attempt is then not handed up again


class MediumParts(NamedTuple):
    """What a medium is built from."""

    engine: Engine
    links: RadioLinks  # who receives whom
    sensed: RadioLinks  # who senses whom; the same object if the radio senses no farther than it receives
    trace: Trace
    random: Random
    seed: int


class Medium:
    """The base of the radio models. A model implements `send` and `forget`, and `of` if it needs more."""

    @classmethod
    def of(cls, air: MediumParts, radio: Any) -> Self:
        """The medium for a model's parameters. Their type is Any because each model has its own."""
        return cls(air.engine, air.links, air.trace, air.random, radio.loss)

    def __init__(self, engine: Engine, links: RadioLinks, trace: Trace, random: Random, loss: float) -> None:
        self._engine = engine
        self._links = links
        self._members = links.members
        self._trace = trace
        self._transmitted: list[Transmitted] = trace.of(Transmitted)
        self._random = random
        self._loss = loss
        # receivers[channel][node]: where that node's frames go; None while the node is down.
        self.receivers: dict[Channel, list[Receive | None]] = {
            channel: [None] * links.nodes for channel in Channel
        }

    def send(self, job: Job) -> None:
        raise NotImplementedError

    def forget(self, node: NodeId) -> None:
        """The node crashed: its queued frames are lost."""
        raise NotImplementedError

    def airtime(self, octets: int) -> Micros:
        """How long a frame with such a payload takes, and the usual wait before it (`Host.airtime`)."""
        return 0

    # For the models.

    def _without_losses(self, nodes: int) -> int:
        """The receivers that are left after random loss; each is drawn independently."""
        if not self._loss:
            return nodes
        for node in self._members[nodes]:
            if self._random.random() < self._loss:
                nodes &= ~(1 << node)
        return nodes

    def _reach(self, job: Job, began: Micros, airtime: Micros) -> None:
        """The end of a frame that nothing collides with: whom it reaches now, less random losses."""
        in_range = self._links.reach[job.sender]
        if job.to is not None:
            in_range &= 1 << job.to
        received = self._without_losses(in_range)
        self._record(job, began, airtime, received, 0, in_range & ~received)
        if job.to is not None and not received:
            self._give_up(job, DropReason.RETRIES if in_range else DropReason.NOT_IN_RANGE)
        self._hand_up(job, received)

    def _hand_up(self, job: Job, received: int) -> None:
        receivers = self.receivers[job.channel]
        sender, payload = job.sender, job.frame.payload
        for node in self._members[received]:
            receive = receivers[node]
            if receive is not None:
                receive(sender, payload)

    def _record(
        self, job: Job, began: Micros, airtime: Micros, received: int, collided: int, faded: int
    ) -> None:
        if job.to is not None:
            addressee = self._links.alone[job.to]  # one object for many records, see `csma`
            received = addressee if received & addressee else 0
            collided = addressee if collided & addressee else 0
            faded = addressee if faded & addressee else 0
        frame = job.frame
        event = frame.event
        self._transmitted.append(
            Transmitted(
                began,
                job.sender,
                job.to,
                KIND_NAMES[frame.kind],
                frame.message,
                len(frame.payload),
                job.attempt,
                airtime,
                None if event is None else event[0],
                None if event is None else event[1],
                frame.own,
                received,
                collided,
                faded,
                LAYER_NAMES[job.channel],
            )
        )

    def _give_up(self, job: Job, reason: DropReason) -> None:
        """Trace the loss of a frame and report it to its sender, in an action of its own."""
        event = job.frame.event
        self._trace.add(
            Dropped(
                self._engine.now,
                job.sender,
                reason,
                job.frame.message,
                None if event is None else event.publisher,
                None if event is None else event.sequence,
                job.to,
            )
        )
        if job.on_failure is not None and reason is not DropReason.CRASHED:
            failure = SendFailure.QUEUE_FULL if reason is DropReason.QUEUE_FULL else SendFailure.LINK
            self._engine.at(self._engine.now, _call, (job.on_failure, failure))


class SendQueue:
    """A bounded queue of frames, control before data."""

    __slots__ = ("_control", "_data", "_length_max", "length")

    def __init__(self, length_max: int) -> None:
        self._control: deque[Job] = deque()
        self._data: deque[Job] = deque()
        self._length_max = length_max
        self.length = 0

    def put(self, job: Job) -> Job | None:
        """Add a frame; returns the frame that had to be dropped. Control displaces the newest data frame."""
        control = job.frame.kind is Kind.CONTROL
        refused: Job | None = None
        if self.length >= self._length_max:
            if not control or not self._data:
                return job
            refused = self._data.pop()
        else:
            self.length += 1
        (self._control if control else self._data).append(job)
        return refused

    def take(self) -> Job:
        """The next frame of a queue that is not empty."""
        self.length -= 1
        return self._control.popleft() if self._control else self._data.popleft()

    def drain(self) -> list[Job]:
        jobs = [*self._control, *self._data]
        self._control.clear()
        self._data.clear()
        self.length = 0
        return jobs


def _call(failed: tuple[Callable[[SendFailure], None], SendFailure]) -> None:
    on_failure, failure = failed
    on_failure(failure)


class IdealMedium(Medium):
    def send(self, job: Job) -> None:
        self._engine.at(self._engine.now, self._arrive, job)

    def forget(self, node: NodeId) -> None:
        """Nothing is ever queued."""

    def _arrive(self, job: Job) -> None:
        if self._links.alive >> job.sender & 1:
            self._reach(job, self._engine.now, 0)
        else:
            self._give_up(job, DropReason.CRASHED)


class DiskMedium(Medium):
    def __init__(
        self, engine: Engine, links: RadioLinks, trace: Trace, random: Random, radio: DiskRadio
    ) -> None:
        super().__init__(engine, links, trace, random, radio.loss)
        self._airtime = radio.airtime
        self._delay, longest = map(micros, radio.delays())
        self._spread = longest - self._delay
        self._last_arrivals: list[Micros] = [0] * links.nodes  # by sender
        self._queues = [SendQueue(radio.queue) for _ in range(links.nodes)]
        self._sending: list[Job | None] = [None] * links.nodes

    @classmethod
    def of(cls, air: MediumParts, radio: DiskRadio) -> Self:
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

    def airtime(self, octets: int) -> Micros:
        return self._airtime(octets)

    def _begin(self, job: Job) -> None:
        self._sending[job.sender] = job
        airtime = self.airtime(len(job.frame.payload))
        self._engine.at(self._engine.now + airtime, self._end, (job, self._engine.now, airtime))

    def _end(self, ended: tuple[Job, Micros, Micros]) -> None:
        job = ended[0]
        if self._sending[job.sender] is not job:
            return  # its sender crashed meanwhile
        self._sending[job.sender] = None
        arrival = self._engine.now + self._delay
        if self._spread:
            # A host promises that frames of one sender arrive in order: none overtakes the one before it.
            arrival += round(self._spread * self._random.random())
            arrival = self._last_arrivals[job.sender] = max(arrival, self._last_arrivals[job.sender])
        self._engine.at(arrival, self._arrive, ended)
        queue = self._queues[job.sender]
        if queue.length:
            self._begin(queue.take())

    def _arrive(self, ended: tuple[Job, Micros, Micros]) -> None:
        self._reach(*ended)
