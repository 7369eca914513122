"""What neighbours say to each other now and then: the sum of their rows, and which flooded events they have.

Whoever lacks an event that a neighbour names asks that neighbour for it. So what a flood did not bring, and
what was published behind a partition, is pulled by those who lack it; nobody confirms what it got.
"""

from collections import deque

from roamcast.event import EventId
from roamcast.kit.protocol import Timer, random_below
from roamcast.kit.repair import Requests
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.messages import (
    RUNS_MAX,
    WANTED_MAX,
    NodeDigest,
    WantFlooded,
)
from roamcast.strategy.opportunistic.shared import Part, Shared
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

PERIOD: Micros = SECOND
ROWS_PERIOD: Micros = (
    2 * SECOND
)  # rows that differ for less may still be on their way (`board.py: SPREADING`)
YOUNG: Micros = 10 * SECOND  # so long after its start a node says as soon that it has learnt a row
LONGEST: Micros = 10 * SECOND  # a digest that says nothing new is said more and more rarely
MEETING: Micros = 200 * MILLISECOND
# A digest may be faster than the flood of its last event (`floods.py: OTHERS_LATER`), and all who lack
# an event hear of it at the same moment.
ASK_AFTER: Micros = 60 * MILLISECOND
ASKED_FOR: Micros = 500 * MILLISECOND  # then an event may be asked for again
SCANNED_MAX = 20_000  # events of one digest that are looked at
ANSWERS_MAX = 4_096
ANSWER_PACE: Micros = 10 * MILLISECOND
ANSWER_BURST = 4


class Gossip(Part):
    def __init__(self, shared: Shared, floods: Floods) -> None:
        super().__init__(shared)
        self._floods = floods
        self._digest_timer = Timer(self._host, self._on_period)
        self._ask_timer = Timer(self._host, self._ask_all)
        self._answer_timer = Timer(self._host, self._answer)
        self._requests = Requests(self._copies.is_known, request_max=64, timeout=ASKED_FOR)
        self._answers: deque[tuple[NodeId, EventId]] = deque()
        self._offering: dict[NodeId, None] = {}  # neighbours that have what we lack
        self._asked: dict[EventId, bool] = {}
        self._said: NodeDigest | None = None
        self._wait = PERIOD
        self._due: Micros = 0
        self._forgot_at: Micros = 0
        self._started_at: Micros = 0

    # Inputs.

    def on_start(self) -> None:
        self._started_at = self._host.now()
        self._set(random_below(self._host, PERIOD))

    def _on_period(self) -> None:
        if self._host.now() - self._forgot_at >= LONGEST:
            self._forgot_at = self._host.now()
            self._board.forget_silent()
        digest = NodeDigest(self._board.sum, self._copies.runs()[: 2 * RUNS_MAX])
        if self._said is None or digest.runs != self._said.runs:
            self._wait = PERIOD
        elif digest.rows != self._said.rows:
            self._wait = self._rows_period(self._host.now())
        else:
            self._wait = min(2 * self._wait, LONGEST)
        self._said = digest
        self._messenger.send(digest)
        self._set(int(self._wait * (0.9 + 0.2 * self._host.random.random())))

    def on_event(self) -> None:
        """Neighbours shall hear of it within a period."""
        self._hasten(PERIOD, self._host.now())

    def on_row(self) -> None:
        """The same, later: rows are flooded, and a digest only says that one may have been lost."""
        now = self._host.now()
        self._hasten(self._rows_period(now), now)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        """It may come from another part of the network."""
        self._board.on_met(neighbour)
        if self._due > self._host.now() + MEETING:
            self._set(int(MEETING * (0.5 + self._host.random.random())))

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._board.on_lost(neighbour)
        self._requests.on_neighbour_down(neighbour)

    def on_digest(self, sender: NodeId, digest: NodeDigest) -> None:
        self._board.on_sum(sender, digest.rows)
        if digest.rows != self._board.sum:
            self.on_row()
        if self._said is not None and digest.runs == self._said.runs:
            return  # it has what we have
        unknown = self._unknown(digest.runs)
        if unknown:
            self._requests.on_offer(sender, unknown)
            if not self._offering:
                self._ask_timer.after(ASK_AFTER + random_below(self._host, ASK_AFTER))
            self._offering[sender] = None

    def on_want(self, sender: NodeId, want: WantFlooded) -> None:
        idle = not self._answers
        for publisher, sequence in zip(want.events[::2], want.events[1::2], strict=False):
            if len(self._answers) < ANSWERS_MAX:
                self._answers.append((sender, EventId(publisher, sequence)))
        if idle and self._answers:
            self._answer()

    def on_copy(self, sender: NodeId, event: EventId) -> bool:
        """A flooded event is heard; whether we had asked this neighbour for it."""
        if not self._asked:
            return False
        self._requests.on_copy(sender, event)
        return self._asked.pop(event, None) is not None

    # Private.

    def _rows_period(self, now: Micros) -> Micros:
        return PERIOD if now - self._started_at < YOUNG else ROWS_PERIOD

    def _hasten(self, period: Micros, now: Micros) -> None:
        if self._wait > period:
            self._wait = period
        if self._due > now + period:
            self._set(int(period * (0.5 + 0.5 * self._host.random.random())))

    def _set(self, delay: Micros) -> None:
        self._due = self._host.now() + delay
        self._digest_timer.at(self._due)

    def _ask_all(self) -> None:
        offering, self._offering = self._offering, {}
        for neighbour in offering:
            self._ask(neighbour)

    def _ask(self, neighbour: NodeId) -> None:
        wanted = self._requests.request(neighbour, self._host.now())[:WANTED_MAX]
        if wanted:
            if len(self._asked) > SCANNED_MAX:
                self._asked.clear()
            self._asked.update(dict.fromkeys(wanted, True))
            self._messenger.send(WantFlooded(tuple(n for event in wanted for n in event)), neighbour)

    def _answer(self) -> None:
        for _ in range(min(ANSWER_BURST, len(self._answers))):
            to, event = self._answers.popleft()
            flooded = self._floods.flooded(event)
            if flooded is not None:
                self._messenger.send(flooded, to, own=event.publisher == self._host.node)
        if self._answers:
            self._answer_timer.after(ANSWER_PACE)

    def _unknown(self, runs: tuple[int, ...]) -> list[EventId]:
        """The events of a digest that this node lacks; what is no list of runs names none."""
        events: list[EventId] = []
        at, left = 0, SCANNED_MAX
        while at + 1 < len(runs):
            publisher, count = runs[at], runs[at + 1]
            at, end = at + 2, min(at + 2 + 2 * count, len(runs))
            if runs[end - 1] <= self._copies.settled(publisher):
                at = end  # nearly all digests say nothing new
                continue
            for first, last in zip(runs[at:end:2], runs[at + 1 : end : 2], strict=False):
                last = min(last, first + left - 1)
                events += self._copies.unknown(publisher, first, last)
                left -= max(last - first + 1, 0)
            at = end
        return events
