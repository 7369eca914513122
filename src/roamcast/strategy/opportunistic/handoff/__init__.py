"""Moving a client from one broker to another (section 2.4, step 3): the eight steps, made safe.

A reader's cursors say exactly how far each producer's events have been handled. They move with the
modulators' states, and whatever the destination lacks behind them it asks for. So no step has to wait for
events that are on some way, and it does not matter who has switched when. The steps, at the source broker:

    asked ──Accepted──▶ switching ──all Switched──▶ moved ──Taken──▶ done
      │ refused, late       │ late                    │ destination restarted
      ▼                     ▼                         ▼
    aborted              rolled back, or moved      resumed here

- Late while asked: `Cancelled`; nothing had changed. - Late while switching, because the destination does not
answer: rolled back. Nothing has moved yet. - Late while switching, because a producers' broker does not
answer: the client moves all the same. What that broker still sends to the source is passed on. - A client
that has not heard of its home for `home_timeout` chooses another by itself. That one asks the home that was
given up for the modulators (`Detour`), which come as in step 7. If it has none, or does not answer in twice
`handoff_timeout`, they begin anew. - When a party crashes, what only it had is lost: the modulators' states.
The others go on.

`DETOUR` (step 3) goes to the home brokers of all producers, so that these send to the destination at once.
Those that no way leads to, and that the client's modulators have read nothing of, hear of the move by the
client's row. The ACK (`Switched`, step 4) goes to both brokers. The destination holds back all that comes for
the client since it accepted it, so what comes after the ACK is among it (step 6), and nothing waits for that.
A client without modulators gets its events past its home, and no producer has to switch.

`loose`: the client is moved at once: its modulators' states and one message to the destination, one back; no
broker is asked. Order is kept all the same. `stateless`: the states stay, so it is one message each way.
"""

from collections.abc import Callable

from roamcast.strategy.opportunistic.consumers import generation_of
from roamcast.strategy.opportunistic.handoff.destination import BrokerLoad, Destination
from roamcast.strategy.opportunistic.handoff.source import Source
from roamcast.strategy.opportunistic.homes import Homes
from roamcast.strategy.opportunistic.messages import (
    Accepted,
    Cancelled,
    CarryMessage,
    Detour,
    Handoff,
    MovedDelivery,
    MovedMessage,
    MovedState,
    Switched,
    Taken,
)
from roamcast.strategy.opportunistic.readers import NodeReading
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts, StreamHandlers
from roamcast.units import Micros, NodeId


class Handoffs(NodePart):
    """Both sides, at one broker."""

    def __init__(
        self,
        shared: SharedParts,
        homes: Homes,
        reading: NodeReading,
        broker: BrokerLoad,
        on_carry: Callable[[CarryMessage], None],
    ) -> None:
        super().__init__(shared)
        self._shared = shared
        self.source = Source(shared, homes, reading)
        self.destination = Destination(shared, homes, broker, on_carry)

        self.messages: StreamHandlers = {
            Handoff: self.destination.on_handoff,
            Accepted: self.source.on_accepted,
            Detour: self._on_detour,
            Switched: self._on_switched,
            MovedDelivery: self.destination.on_luggage,
            MovedState: self.destination.on_luggage,
            MovedMessage: self._on_moved,
            Taken: self.source.on_taken,
            Cancelled: self.destination.on_cancelled,
        }

    # Inputs.

    def _on_switched(self, sender: NodeId, message: Switched, held: Micros) -> None:
        self.source.on_switched(sender, message)
        self.destination.on_switched(message)

    def _on_moved(self, sender: NodeId, message: MovedMessage, held: Micros) -> None:
        claim = self.destination.claim_of(message.consumer)
        self.destination.on_moved(sender, message, held)
        if claim is not None:
            self._on_detour(sender, claim, held)

    def on_reset(self, peer: NodeId) -> None:
        """A broker restarted, or forgot us: it knows of no handoff and has switched nothing."""
        self.source.on_reset(peer)
        self.destination.on_reset(peer)

    def on_superseded(self, node: NodeId, version: int) -> None:
        """A newer row of a client: whatever is under way here is over."""
        self.source.on_superseded(node, version)
        self.destination.on_superseded(node, version)

    def on_carry(self, carry: CarryMessage) -> bool:
        """Whether an event is for a client on the move, and is seen to."""
        return self.source.on_carry(carry) or self.destination.on_carry(carry)

    # Questions.

    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self.source.is_idle() and self.destination.is_idle()

    # Private.

    def _on_detour(self, sender: NodeId, message: Detour, held: Micros) -> None:
        """Step 4. The answer goes out whether or not it was news: the source waits for it, and the
        destination hears of it."""
        boot = self._overlay.boot_of(message.home)
        # A client has given this home up if it has chosen anew; a source that rolls back names itself too.
        # Its modulators go to the home that it chose, from here or from the broker that it was handed off to.
        known = self._consumers.version(message.consumer)
        is_claim = generation_of(message.version) > generation_of(known)
        if is_claim and message.source == message.home != self._host.node:
            if self.source.on_claimed(message, boot) or self.destination.on_claimed(message):
                return
            if pass_claim_on(self._shared, message):
                return
        self._consumers.switch(message.consumer, message.version, message.home, boot)
        for broker in sorted({message.source, message.home} - {self._host.node}):
            self._streams.write(broker, Switched(message.consumer, message.version))


def pass_claim_on(shared: SharedParts, claim: Detour) -> bool:
    """A client has given up a home that had handed it on: whether the broker that has its modulators now is
    told. A node that is no broker any more does the same."""
    consumers, overlay = shared.consumers, shared.overlay
    row = consumers.find(claim.consumer)
    if row is None or row.home in (overlay.own, claim.home):
        return False
    if claim.source != claim.home or consumers.version(claim.consumer) >= claim.version:
        return False
    consumers.switch(claim.consumer, claim.version, claim.home, overlay.boot_of(claim.home))
    shared.streams.write(row.home, claim)
    return True
