"""Sending: messages that are tried again, and broadcasts after a random delay.

Two kinds of repeats. A *hop* is tried again when the link layer reports that it failed. An *agreement*
(something that must be known at both ends) is repeated until it is answered, because silence is no proof
of arrival. When either is given up, the protocol is called by `on_undelivered`. What is sent once goes by
the messenger.

The times and the bound below are chosen by us. Shorter times find a broken link sooner and load the radio
more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from roamcast.host import SendFailure
from roamcast.kit.confirm import Backoff, Repetition
from roamcast.kit.protocol import Messenger, Timer, random_below
from roamcast.strategy.tree.overlay.messages import OverlayMessage
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import MILLISECOND, Micros, NodeId, micros

HOP_DELAY: Micros = 10 * MILLISECOND  # before the second attempt; doubled for each further one
AGREEMENT = Backoff(100 * MILLISECOND, attempts=5)  # unanswered after 3.1 s, the link is given up
WAITING_MAX = 1_000  # delayed messages at a time

AgreementKey: TypeAlias = tuple[NodeId, int]
"""The neighbour and the link."""


@dataclass(slots=True)
class Agreement:
    message: OverlayMessage
    own: bool
    repetition: Repetition


class TreeCourier:
    def __init__(
        self,
        messenger: Messenger[OverlayMessage],
        options: TreeOptions,
        on_undelivered: Callable[[NodeId], object],
    ) -> None:
        self._messenger = messenger
        self._host = messenger.host
        self._jitter = micros(options.jitter)
        self._hop = Backoff(HOP_DELAY, attempts=options.link_attempts - 1)  # repeats after the first attempt
        self._on_undelivered = on_undelivered
        self._agreements: dict[AgreementKey, Agreement] = {}
        self._waiting = 0

    def broadcast_soon(self, message: OverlayMessage) -> None:
        """Pass on after a random delay, so that the receivers of one broadcast do not all answer at once."""
        delay = random_below(self._host, self._jitter)
        self._later(delay, message, partial(self._messenger.send, message, own=False))

    def hop(self, to: NodeId, message: OverlayMessage, *, own: bool = False, repeats: int = 0) -> None:
        """Send to a neighbour, with a few attempts."""

        def on_failure(failure: SendFailure) -> None:
            if not self._hop.is_over(repeats):
                again = partial(self.hop, to, message, own=own, repeats=repeats + 1)
                self._later(self._hop.wait(repeats), message, again)
            elif failure is SendFailure.LINK:
                self._on_undelivered(to)

        self._messenger.send(message, to, own=own, on_failure=on_failure)

    def agree(self, to: NodeId, link: int, message: OverlayMessage, *, own: bool) -> None:
        """Send, and repeat until `agreed` is called or the attempts are used up."""
        self.agreed(to, link)
        timer = Timer(self._host, partial(self._repeat, (to, link)))
        self._agreements[to, link] = Agreement(message, own, Repetition(self._host, timer, AGREEMENT))
        self._repeat((to, link))

    def agreed(self, to: NodeId, link: int) -> None:
        agreement = self._agreements.pop((to, link), None)
        if agreement is not None:
            agreement.repetition.end()

    def is_agreeing(self, to: NodeId, link: int) -> bool:
        return (to, link) in self._agreements

    def _repeat(self, key: AgreementKey) -> None:
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

        self._messenger.send(agreement.message, to, own=agreement.own, on_failure=on_failure)

    def _later(self, delay: Micros, message: OverlayMessage, send: Callable[[], object]) -> None:
        if self._waiting >= WAITING_MAX:
            self._messenger.overflow(message.name, "WAITING_MAX")
            return
        self._waiting += 1

        def due() -> None:
            self._waiting -= 1
            send()

        Timer(self._host, due).after(delay)
