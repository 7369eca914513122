"""What waits for a node that cannot be reached: looked through every few seconds, and given up in time.

Every node has such letters: brokers' for readers and for clients, clients' publications for a home broker.
The discard function (`discard.py`) decides about the events among them; everything else waits.
"""

from roamcast.host import Host
from roamcast.strategy.opportunistic.messages import (
    CarryLetter,
    Deliver,
    Letter,
    PublishLetter,
    Skip,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.stream import UNREACHABLE_AFTER, Post
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId

LOOK_THROUGH_EVERY: Micros = 5 * SECOND


class Undeliverable:
    """Timers are `("look through", peer)`."""

    def __init__(self, host: Host, options: OpportunisticOptions, post: Post) -> None:
        self._host = host
        self._options = options
        self._post = post

    def on_unreachable(self, peer: NodeId) -> None:
        self._host.set_timer(("look through", peer), self._host.now() + LOOK_THROUGH_EVERY)

    def on_timer(self, peer: NodeId) -> None:
        """Drop what has waited too long for `peer`; the rest is written again in its order. What had arrived
        without our knowing arrives twice then, and is known by its number or identity."""
        if not self._post.waiting(peer):
            return
        self._host.set_timer(("look through", peer), self._host.now() + LOOK_THROUGH_EVERY)
        if self._post.silence(peer) < UNREACHABLE_AFTER:
            return  # it can be reached again, and letters are on their way
        if not any(self._is_over(letter) for letter in self._post.unconfirmed(peer)):
            return
        for letter in self._post.abandon(peer):
            if isinstance(letter, CarryLetter | Deliver | PublishLetter) and self._is_over(letter):
                self._post.drop(DropReason.EXPIRED, letter.name, letter.event.id, peer)
                if isinstance(letter, Deliver):
                    self._post.write(peer, Skip(letter.generation, letter.number, letter.number + 1))
            else:
                self._post.write(peer, letter)

    def _is_over(self, letter: Letter) -> bool:
        return isinstance(letter, CarryLetter | Deliver | PublishLetter) and self._options.is_over(
            letter.event, letter.age
        )
