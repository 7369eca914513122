"""Sending: messages that are tried again, and broadcasts after a random delay.

Two kinds of repeats. A *hop* is tried again when the link layer reports that it failed. An *agreement*
(something that must be known at both ends) is repeated until it is answered, because silence is no proof
of arrival. When either is given up, the protocol is called by `on_undelivered`. What is sent once goes by
the messenger.

The times and the bound below are chosen by us. Shorter times find a broken link sooner and load the radio
more.
"""

from collections.abc import Callable
from functools import partial

from roamcast.host import SendFailure
from roamcast.kit.confirm import Backoff, Repetition
from roamcast.kit.protocol import Messenger, Timer, random_below
from roamcast.kit.relay import Relay
from roamcast.strategy.tree.overlay.messages import OverlayMessage
from roamcast.units import MILLISECOND, Micros, NodeId

LINK_ATTEMPTS = 4  # of one frame before its link counts as broken
HOP = Backoff(10 * MILLISECOND, attempts=LINK_ATTEMPTS - 1)  # repeats after the first attempt
AGREEMENT = Backoff(100 * MILLISECOND, attempts=5)  # unanswered after 3.1 s, the link is given up
WAITING_MAX = 1_000  # delayed messages at a time


class TreeCourier:
    def __init__(
        self,
        messenger: Messenger[OverlayMessage],
        jitter: Micros,
        on_undelivered: Callable[[NodeId], object],
    ) -> None:
        self._messenger = messenger
        self._host = messenger.host
        self._jitter = jitter
        self._on_undelivered = on_undelivered
        self._agreements: dict[tuple[NodeId, int], Repetition] = {}  # by neighbour and link
        self._number = 0  # of the messages that were delayed
        self._delayed: Relay[int, Callable[[], object]] = Relay(
            self._host, send=lambda _, send: send(), most=WAITING_MAX
        )

    def broadcast_soon(self, message: OverlayMessage) -> None:
        """Pass on after a random delay, so that the receivers of one broadcast do not all answer at once."""
        delay = random_below(self._host, self._jitter)
        self._later(delay, message, partial(self._messenger.send, message, own=False))

    def hop(self, to: NodeId, message: OverlayMessage, *, own: bool = False, repeats: int = 0) -> None:
        """Send to a neighbour, with a few attempts."""

        def on_failure(failure: SendFailure) -> None:
            if not HOP.is_over(repeats):
                again = partial(self.hop, to, message, own=own, repeats=repeats + 1)
                self._later(HOP.wait(repeats), message, again)
            elif failure is SendFailure.LINK:
                self._on_undelivered(to)

        self._messenger.send(message, to, own=own, on_failure=on_failure)

    def agree(self, to: NodeId, link: int, message: OverlayMessage, *, own: bool) -> None:
        """Send, and repeat until `agreed` is called or the attempts are used up."""

        def send() -> None:
            if repetition.attempt():
                self._messenger.send(message, to, own=own, on_failure=on_failure)
            else:
                del self._agreements[to, link]
                self._on_undelivered(to)

        def on_failure(failure: SendFailure) -> None:
            if self._agreements.get((to, link)) is not repetition:
                return
            if failure is SendFailure.QUEUE_FULL:
                repetition.take_back()  # a full queue of our own must not end the link
            else:  # known to be lost: repeat sooner than after silence
                repetition.wait(HOP.wait(repetition.attempts))

        self.agreed(to, link)
        repetition = self._agreements[to, link] = Repetition(self._host, Timer(self._host, send), AGREEMENT)
        send()

    def agreed(self, to: NodeId, link: int) -> None:
        repetition = self._agreements.pop((to, link), None)
        if repetition is not None:
            repetition.end()

    def is_agreeing(self, to: NodeId, link: int) -> bool:
        return (to, link) in self._agreements

    def _later(self, delay: Micros, message: OverlayMessage, send: Callable[[], object]) -> None:
        self._number += 1
        if not self._delayed.add(self._number, send, delay):
            self._messenger.overflow(message.name, "WAITING_MAX")
