"""Sending: frames with their labels, repeats, and broadcasts after a random delay.

Two kinds of repeats. A *hop* is tried again when the link layer reports that it failed. An *agreement*
(something that must be known at both ends) is repeated until it is answered, because silence is no proof
of arrival. When either is given up, the protocol is called by `on_undelivered`.

The times and the bound below are chosen by us. Shorter times find a broken link sooner and load the radio
more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from roamcast.host import Frame, Host, Kind, SendFailure
from roamcast.kit.confirm import Backoff, Repetition
from roamcast.kit.protocol import trace_overflow
from roamcast.strategy.tree.overlay.messages import CODEC, NAMES, Message
from roamcast.units import MILLISECOND, Micros, NodeId, micros

TIMER = "overlay"  # first part of all timer names; the content router shares the host
HOP_DELAY: Micros = 10 * MILLISECOND  # before the second attempt; doubled for each further one
AGREEMENT = Backoff(100 * MILLISECOND, attempts=5)  # unanswered after 3.1 s, the link is given up
WAITING_MAX = 1_000  # delayed messages at a time

AgreementKey: TypeAlias = tuple[NodeId, int]
"""The neighbour and the link."""


@dataclass(slots=True)
class Agreement:
    message: Message
    own: bool
    repetition: Repetition


class TreeCourier:
    def __init__(
        self, host: Host, jitter: float, link_attempts: int, on_undelivered: Callable[[NodeId], None]
    ) -> None:
        self._host = host
        self._jitter = micros(jitter)
        self._hop = Backoff(HOP_DELAY, attempts=link_attempts - 1)  # repeats after the first attempt
        self._on_undelivered = on_undelivered
        self._agreements: dict[AgreementKey, Agreement] = {}
        self._waiting: dict[int, tuple[NodeId | None, Message, bool, int]] = {}
        self._number = 0

    def broadcast(self, message: Message, *, own: bool) -> None:
        self._host.broadcast(self._frame(message, own))

    def broadcast_soon(self, message: Message, *, own: bool) -> None:
        """After a random delay, so that the receivers of one broadcast do not all answer at once."""
        self._later(int(self._host.random.random() * self._jitter), None, message, own, 0)

    def hop(self, to: NodeId, message: Message, *, own: bool, repeats: int = 0) -> None:
        """Send to a neighbour, with a few attempts."""

        def on_failure(failure: SendFailure) -> None:
            if not self._hop.is_over(repeats):
                self._later(self._hop.wait(repeats), to, message, own, repeats + 1)
            elif failure is SendFailure.LINK:
                self._on_undelivered(to)

        self._host.unicast(to, self._frame(message, own), on_failure)

    def once(self, to: NodeId, message: Message, *, own: bool) -> None:
        """Send to a neighbour, once."""
        self._host.unicast(to, self._frame(message, own))

    def agree(self, to: NodeId, link: int, message: Message, *, own: bool) -> None:
        """Send, and repeat until `agreed` is called or the attempts are used up."""
        repetition = Repetition(self._host, (TIMER, "again", to, link), AGREEMENT)
        self._agreements[(to, link)] = Agreement(message, own, repetition)
        self._again((to, link))

    def agreed(self, to: NodeId, link: int) -> None:
        agreement = self._agreements.pop((to, link), None)
        if agreement is not None:
            agreement.repetition.end()

    def is_agreeing(self, to: NodeId, link: int) -> bool:
        return (to, link) in self._agreements

    def on_again(self, to: NodeId, link: int) -> None:
        if (to, link) in self._agreements:
            self._again((to, link))

    def on_later(self, number: int) -> None:
        to, message, own, repeats = self._waiting.pop(number)
        if to is None:
            self.broadcast(message, own=own)
        else:
            self.hop(to, message, own=own, repeats=repeats)

    def _again(self, key: AgreementKey) -> None:
        agreement = self._agreements[key]
        repetition = agreement.repetition
        to, _ = key
        if not repetition.attempt():
            del self._agreements[key]
            self._on_undelivered(to)
            return

        def on_failure(failure: SendFailure) -> None:
            if self._agreements.get(key) is not agreement:
                return
            if failure is SendFailure.QUEUE_FULL:
                repetition.take_back()  # a full queue of our own must not end the link
            else:  # known to be lost: repeat sooner than after silence
                repetition.wait(self._hop.wait(repetition.attempts))

        self._host.unicast(to, self._frame(agreement.message, agreement.own), on_failure)

    def _later(self, delay: Micros, to: NodeId | None, message: Message, own: bool, repeats: int) -> None:
        if len(self._waiting) >= WAITING_MAX:
            trace_overflow(self._host, NAMES[type(message)], "WAITING_MAX")
            return
        self._number += 1
        self._waiting[self._number] = (to, message, own, repeats)
        self._host.set_timer((TIMER, "later", self._number), self._host.now() + delay)

    def _frame(self, message: Message, own: bool) -> Frame:
        return Frame(CODEC.encode(message), Kind.CONTROL, NAMES[type(message)], None, own)
