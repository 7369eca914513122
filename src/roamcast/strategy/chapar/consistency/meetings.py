"""Brokers that come into each other's neighbourhood compare their tables at once (`meeting_check`).

The paper leaves this to the periodic check (section 4.2): a node that was alone, and so its own broker, then
meets another such node, and neither knows what the other wants for up to a whole interval. Where contacts
last some ten seconds, that is most of them.

The node with the lower number begins. The other waits for it, and begins itself after a time-out: the two
may disagree about roles, and a node that does not take this one for a broker will not ask it.
"""

from roamcast.strategy.chapar.consistency.check import Consistency
from roamcast.strategy.chapar.state import State
from roamcast.units import MILLISECOND, Micros, NodeId

MEETING_TIMEOUT: Micros = 500 * MILLISECOND  # chosen by us: short against a contact of ten seconds


class Meetings:
    def __init__(self, state: State, consistency: Consistency) -> None:
        self._state = state
        self._consistency = consistency
        self._met: set[NodeId] = set()

    def look(self) -> None:
        """Compare the brokers around with those met before: roles or neighbours may have changed."""
        state = self._state
        if not state.in_force.meeting_check:
            return
        adjacent = set(state.adjacent_brokers()) if state.is_broker else set()
        for broker in sorted(self._met - adjacent):
            self._met.discard(broker)
            state.host.cancel_timer(("meet", broker))
        for broker in sorted(adjacent - self._met):
            self._met.add(broker)
            if state.node < broker:
                self._begin(broker)
            else:
                state.host.set_timer(("meet", broker), state.host.now() + MEETING_TIMEOUT)

    def on_check(self, sender: NodeId) -> None:
        """The other broker has begun."""
        self._state.host.cancel_timer(("meet", sender))

    def on_due(self, broker: NodeId) -> None:
        if broker in self._met:
            self._begin(broker)

    def _begin(self, broker: NodeId) -> None:
        # If the check is lost, the next `look` begins again.
        self._consistency.check_met(broker, on_failure=lambda: self._met.discard(broker))
