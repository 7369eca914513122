"""How far nodes are in time (channels, 3.1): half of the round trip of a ping, here or from another broker.

Round trips of streams are smoothed over minutes and known only where letters went; who compares two ways
that a client might take from now on needs both of now.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from roamcast.host import Host
from roamcast.strategy.opportunistic.adaptation.messages import (
    PEERS_MAX,
    AdaptationLetter,
    Latencies,
    Measure,
    Ping,
    PingLetter,
    Pong,
)
from roamcast.units import SECOND, Micros, NodeId

PATIENCE: Micros = 2 * SECOND  # with pings; one more second with whoever was asked for some
ROUNDS_MAX = 64

OnMeasured = Callable[[Mapping[NodeId, Micros]], None]


@dataclass
class Round:
    """Pings whose answers are awaited."""

    waiting: dict[int, NodeId]
    found: dict[NodeId, Micros]
    began: Micros
    on_measured: OnMeasured


@dataclass
class Question:
    at: NodeId
    until: Micros
    on_measured: OnMeasured


class Pings:
    def __init__(self, host: Host, send: Callable[[NodeId, AdaptationLetter], None]) -> None:
        self._host = host
        self._send = send
        self._numbers = 0
        self._rounds: list[Round] = []
        self._questions: dict[int, Question] = {}

    def ask(self, at: NodeId, to: Sequence[NodeId], on_measured: OnMeasured) -> None:
        """How far these are from the broker `at`; without those that did not answer in time."""
        if at == self._host.node:
            self._measure(to[:PEERS_MAX], on_measured)
        elif len(self._questions) >= ROUNDS_MAX:
            on_measured({})
        else:
            until = self._host.now() + PATIENCE + SECOND
            self._questions[self._next()] = Question(at, until, on_measured)
            self._send(at, Measure(self._numbers, tuple(to[:PEERS_MAX])))

    def on_letter(self, sender: NodeId, message: PingLetter) -> None:
        match message:
            case Ping():
                self._send(sender, Pong(message.number))
            case Pong():
                self._on_pong(sender, message.number)
            case Measure():
                number = message.number
                self._measure(message.peers, lambda found: self._send(sender, _told(number, found)))
            case Latencies():
                question = self._questions.get(message.number)
                if question is not None and question.at == sender:
                    del self._questions[message.number]
                    question.on_measured(dict(zip(message.pairs[::2], message.pairs[1::2], strict=False)))

    def on_timer(self) -> None:
        """Called now and then: who has not answered will not."""
        now = self._host.now()
        for round in [one for one in self._rounds if now - one.began >= PATIENCE]:
            self._rounds.remove(round)
            round.on_measured(round.found)
        for number in [n for n, question in self._questions.items() if question.until <= now]:
            self._questions.pop(number).on_measured({})

    def _measure(self, to: Sequence[NodeId], on_measured: OnMeasured) -> None:
        own, now = self._host.node, self._host.now()
        if len(self._rounds) >= ROUNDS_MAX:
            on_measured({})
            return
        peers = sorted(set(to) - {own})
        waiting = {self._next(): peer for peer in peers}
        found = {own: 0} if own in to else {}
        if not waiting:
            on_measured(found)
            return
        self._rounds.append(Round(waiting, found, now, on_measured))
        for number, peer in waiting.items():
            self._send(peer, Ping(number))

    def _on_pong(self, sender: NodeId, number: int) -> None:
        for round in self._rounds:
            if round.waiting.get(number) == sender:
                del round.waiting[number]
                round.found[sender] = (self._host.now() - round.began) // 2
                if not round.waiting:
                    self._rounds.remove(round)
                    round.on_measured(round.found)
                return

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers


def _told(number: int, found: Mapping[NodeId, Micros]) -> Latencies:
    return Latencies(number, tuple(value for pair in sorted(found.items()) for value in pair))
