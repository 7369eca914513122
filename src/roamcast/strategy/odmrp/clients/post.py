"""Unicast between clients and brokers, over paths that their own messages leave behind.

A search leaves the path back to the client at each node that passes it on, and every message on its way
leaves the path to its origin, as Join Requests do in the mesh. So no routing protocol is needed below;
paths are soft state.
"""

from collections.abc import Callable

from roamcast.event import EventId
from roamcast.host import Frame, Host, Kind, SendFailure
from roamcast.kit.protocol import overflow_traced
from roamcast.kit.tables import ExpiringDict
from roamcast.strategy.odmrp.clients.messages import NAMES, BrokerSearch, Carried, ClientContent, ClientEvent
from roamcast.strategy.odmrp.mesh.messages import CODEC
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId, micros

TIMER_SEARCH = "search_relay"
SEARCHES_MAX = 256  # that wait to be passed on; chosen by us


class Post:
    def __init__(
        self, host: Host, options: OdmrpOptions, is_broker: bool, on_lost: Callable[[NodeId], None]
    ) -> None:
        """`on_lost`: the first hop to this node cannot be reached."""
        self._host = host
        self._is_broker = is_broker
        self._on_lost = on_lost
        self._reach = options.client_hops
        self._hop_limit = options.hop_limit
        self._hold = micros(options.forwarding_timeout)
        self._jitter = micros(options.jitter)
        is_full = overflow_traced(host, "broker_search", "publishers_max")
        self._paths: ExpiringDict[NodeId, tuple[NodeId, Micros]] = ExpiringDict(
            options.publishers_max, is_full, lambda path: path[1]
        )
        # The last search of each client that was heard.
        self._searches: ExpiringDict[NodeId, tuple[int, Micros]] = ExpiringDict(
            options.publishers_max, is_full, lambda search: search[1]
        )
        self._relayed: dict[NodeId, BrokerSearch] = {}

    def search(self, number: int) -> None:
        """Ask for brokers around this node."""
        self._host.broadcast(_frame(BrokerSearch(self._host.node, number, 0), own=True))

    def send(self, to: NodeId, content: ClientContent) -> None:
        self._carry(Carried(self._host.node, to, 0, content), own=True)

    def on_search(self, sender: NodeId, search: BrokerSearch) -> bool:
        """True if this node is asked to offer itself."""
        client = search.client
        if client == self._host.node or self._searches.get(client, (-1, 0))[0] >= search.number:
            return False
        self._learn(client, sender)
        self._searches[client] = (search.number, self._host.now() + self._hold)
        if self._is_broker:
            return True
        if search.hops + 1 < self._reach and len(self._relayed) < SEARCHES_MAX:
            self._relayed[client] = BrokerSearch(client, search.number, search.hops + 1)
            wait = int(self._host.random.random() * self._jitter)
            self._host.set_timer((TIMER_SEARCH, client), self._host.now() + wait)
        return False

    def on_relay(self, client: NodeId) -> None:
        self._host.broadcast(_frame(self._relayed.pop(client), own=False))

    def on_carried(self, sender: NodeId, carried: Carried) -> ClientContent | None:
        """The content, if it is for this node; otherwise it is passed on."""
        if carried.origin == self._host.node:
            return None
        self._learn(carried.origin, sender)
        if carried.target == self._host.node:
            return carried.content
        if carried.hops + 1 >= self._hop_limit or carried.target not in self._paths:
            self._drop(carried)
        else:
            onward = Carried(carried.origin, carried.target, carried.hops + 1, carried.content)
            self._carry(onward, own=False)
        return None

    def expire(self, now: Micros) -> None:
        self._paths.expire(now)
        self._searches.expire(now)

    def next_expiry(self) -> Micros | None:
        expiries = (self._paths.next_expiry(), self._searches.next_expiry())
        return min((each for each in expiries if each is not None), default=None)

    def __len__(self) -> int:
        return len(self._paths) + len(self._searches)

    def _learn(self, origin: NodeId, sender: NodeId) -> None:
        self._paths[origin] = (sender, self._host.now() + self._hold)

    def _carry(self, carried: Carried, *, own: bool) -> None:
        target = carried.target
        next_hop = self._paths[target][0] if target in self._paths else target

        def on_failure(failure: SendFailure) -> None:
            if failure is SendFailure.LINK and self._paths.get(target, (next_hop,))[0] == next_hop:
                self._paths.pop(target, None)
                if own:
                    self._on_lost(target)

        self._host.unicast(next_hop, _frame(carried, own=own), on_failure)

    def _drop(self, carried: Carried) -> None:
        event = _event(carried)
        now, node, name = self._host.now(), self._host.node, NAMES[type(carried.content)]
        named = (None, None) if event is None else (event.publisher, event.sequence)
        self._host.trace(Dropped(now, node, DropReason.NO_ROUTE, name, *named))


def _event(message: BrokerSearch | Carried) -> EventId | None:
    if isinstance(message, Carried) and isinstance(message.content, ClientEvent):
        return message.content.event.id
    return None


def _frame(message: BrokerSearch | Carried, *, own: bool) -> Frame:
    event = _event(message)
    name = "broker_search" if isinstance(message, BrokerSearch) else NAMES[type(message.content)]
    return Frame(CODEC.encode(message), Kind.CONTROL if event is None else Kind.DATA, name, event, own)
