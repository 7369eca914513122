"""What neighbours say to each other now and then: a fingerprint of their rows, and their flooded events.

Whoever lacks an event that a neighbour names asks that neighbour for it. So what a flood did not bring, and
what was published behind a partition, is pulled by those who lack it; nobody confirms what it got.
"""

from functools import partial

from roamcast.event import EventId
from roamcast.kit.protocol import Timer, overflow_traced, random_below
from roamcast.kit.repair import Answers, Requests
from roamcast.kit.tables import BoundedDict
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.messages import (
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
ASKED_MAX = 20_000
ANSWERS_MAX = 4_096


class Gossip(Part):
    def __init__(self, shared: Shared, floods: Floods) -> None:
        super().__init__(shared)
        self._floods = floods
        self._digest_timer = Timer(self._host, self._on_period)
        self._ask_timer = Timer(self._host, self._ask_all)
        self._requests = Requests(self._copies.is_known, request_max=64, timeout=ASKED_FOR)
        full = partial(self._messenger.overflow, "want", "answers")
        self._answers: Answers[tuple[NodeId, EventId], None] = Answers(
            self._host, self._answer, most=ANSWERS_MAX, on_full=full
        )
        self._offering: dict[NodeId, None] = {}  # neighbours that have what we lack
        self._asked: BoundedDict[EventId, None] = BoundedDict(
            ASKED_MAX, overflow_traced(self._host, "want", "events asked for")
        )
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
        digest = NodeDigest(self._board.fingerprint, self._copies.digest())
        if self._said is None or digest.held != self._said.held:
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
        self._answers.forget(lambda key: key[0] == neighbour)
        self._requests.on_neighbour_down(neighbour)

    def on_digest(self, sender: NodeId, digest: NodeDigest) -> None:
        self._board.on_sum(sender, digest.rows)
        if digest.rows != self._board.fingerprint:
            self.on_row()
        if self._said is not None and digest.held == self._said.held:
            return  # it has what we have
        unknown = self._copies.unknown(digest.held)
        if unknown:
            self._requests.on_offer(sender, unknown)
            if not self._offering:
                self._ask_timer.after(ASK_AFTER + random_below(self._host, ASK_AFTER))
            self._offering[sender] = None

    def on_want(self, sender: NodeId, want: WantFlooded) -> None:
        wanted = map(EventId, want.events[::2], want.events[1::2])
        self._answers.add(((sender, event), None) for event in wanted)

    def on_copy(self, sender: NodeId, event: EventId) -> bool:
        """A flooded event is heard; whether we had asked this neighbour for it."""
        if not self._asked:
            return False
        self._requests.on_copy(sender, event)
        if event not in self._asked:
            return False
        del self._asked[event]
        return True

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
            self._asked.update(dict.fromkeys(wanted))
            self._messenger.send(WantFlooded(tuple(n for event in wanted for n in event)), neighbour)

    def _answer(self, key: tuple[NodeId, EventId], _: None) -> int:
        to, event = key
        flooded = self._floods.flooded(event)
        if flooded is None:
            return 0
        frame = self._messenger.frame(flooded, own=event.publisher == self._host.node)
        self._host.unicast(to, frame)
        return len(frame.payload)
