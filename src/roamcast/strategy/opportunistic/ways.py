"""Events of one broker for one client that come by two ways while the client moves, and stay in order.

The old way ends at the home that the client has left, and what comes there goes on to the new home by
`Relay`; `Closed`, behind the last of these, says that the old way is at its end. Meanwhile a gate at the new
home holds back what comes too early. This is needed where a client moves although somebody has not switched,
and, with the ways exchanged, where it is rolled back. `handoff.py` says when.
"""

from collections.abc import Callable
from dataclasses import dataclass

from roamcast.host import Host
from roamcast.strategy.opportunistic.clients import Arrival, Client
from roamcast.strategy.opportunistic.dispatch import Dispatch
from roamcast.strategy.opportunistic.messages import Closed, Relay, Switched
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.post import Post
from roamcast.units import Micros, NodeId, micros


@dataclass
class Open:
    """At a source that has moved a client while some brokers had not switched."""

    to: NodeId
    version: int
    brokers: set[NodeId]


class OpenWays:
    """The old home's end. Timers are `("open", client)`."""

    def __init__(self, host: Host, options: OpportunisticOptions, post: Post, dispatch: Dispatch) -> None:
        self._host = host
        self._post = post
        self._dispatch = dispatch
        self._patience = micros(options.registration_lifetime)  # with brokers behind a partition
        self._open: dict[NodeId, Open] = {}

    # Inputs.

    def begin(self, node: NodeId, to: NodeId, version: int, brokers: set[NodeId]) -> None:
        self._open[node] = Open(to, version, set(brokers))
        self._host.set_timer(("open", node), self._host.now() + self._patience)

    def close(self, node: NodeId, broker: NodeId) -> None:
        """Nothing comes from this broker any more."""
        gone = self._open[node]
        gone.brokers.discard(broker)
        self._post.write(gone.to, Closed(node, gone.version, broker))
        if not gone.brokers:
            del self._open[node]

    def forget(self, node: NodeId) -> None:
        self._open.pop(node, None)

    def on_switched(self, sender: NodeId, message: Switched) -> None:
        gone = self._open.get(message.consumer)
        if gone is not None and message.version == gone.version and sender in gone.brokers:
            self.close(message.consumer, sender)

    def on_stray(self, node: NodeId, arrival: Arrival) -> bool:
        """Whether an event for a client that is not at home here has come by an open way, and goes on."""
        gone = self._open.get(node)
        if gone is None or arrival.sender not in gone.brokers:
            return False
        self._dispatch.relay(gone.to, node, gone.version, arrival)
        return True

    def on_reset(self, peer: NodeId) -> None:
        """A broker that restarted sends nothing by the old way."""
        for node, gone in list(self._open.items()):
            if peer in gone.brokers:
                self.close(node, peer)

    # Questions.

    def is_idle(self) -> bool:
        return not self._open


class Gates:
    """The new home's end, a `Gate` of the client for each broker. Timers are `("gates", client)`."""

    def __init__(self, host: Host, dispatch: Dispatch) -> None:
        self._host = host
        self._dispatch = dispatch
        # Of a client that has none any more.
        self.on_all_released: Callable[[Client], None] = lambda client: None

    # Inputs.

    def on_relay(self, message: Relay, hops: int, held: Micros) -> None:
        arrival = Arrival(
            message.sender, message.event, message.age + held, message.hops + hops, self._host.now()
        )
        client = self._dispatch.clients.get(message.consumer)
        if client is None:
            self._dispatch.arrive(message.consumer, arrival)
            return
        gate = client.gates.get(message.sender)
        if gate is not None and not gate.is_switched:
            self._dispatch.hold_back(gate.relayed, arrival)
        else:
            self._dispatch.process(client, arrival)

    def on_switched(self, sender: NodeId, message: Switched) -> None:
        client = self._dispatch.clients.get(message.consumer)
        if client is None or message.version != client.version or sender not in client.gates:
            return
        gate = client.gates[sender]
        gate.is_switched = True
        relayed, gate.relayed = gate.relayed, []
        for arrival in relayed:
            self._dispatch.process(client, arrival)
        if gate.is_closed:
            self._release(client, sender)

    def on_closed(self, message: Closed) -> None:
        client = self._dispatch.clients.get(message.consumer)
        gate = None if client is None else client.gates.get(message.sender)
        if client is None or gate is None or message.version != client.version:
            return
        if gate.is_switched:
            self._release(client, message.sender)
        else:
            gate.is_closed = True

    def on_late(self, node: NodeId) -> None:
        """Whoever has not closed the old way by now is not waited for."""
        client = self._dispatch.clients.get(node)
        if client is not None:
            self.release_all(client)

    def on_reset(self, peer: NodeId) -> None:
        """A broker that restarted has switched nothing, and nothing more of it comes by another way."""
        for client in self._dispatch.clients.values():
            if peer in client.gates:
                self._release(client, peer)

    def release_all(self, client: Client) -> None:
        for broker in list(client.gates):
            self._release(client, broker)

    # Questions.

    def holds(self, producer: NodeId) -> bool:
        """Whether events of a producer wait at a gate."""
        return any(
            arrival.event.publisher == producer
            for client in self._dispatch.clients.values()
            for gate in client.gates.values()
            for arrival in gate.relayed + gate.direct
        )

    # Private.

    def _release(self, client: Client, broker: NodeId) -> None:
        gate = client.gates.pop(broker)
        for arrival in gate.relayed + gate.direct:
            self._dispatch.process(client, arrival)
        if not client.gates:
            self._host.cancel_timer(("gates", client.node))
            self.on_all_released(client)
