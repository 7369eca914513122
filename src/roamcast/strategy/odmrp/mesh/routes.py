"""The reverse paths: per publisher, what its last Join Request left here (section 3.5.1).

The first copy of a Join Request to arrive came by the path of shortest delay; its sender becomes the
upstream node, and later copies are duplicates. Beyond the paper, up to `ALTERNATES_MAX` senders of
duplicates that are nearer to the publisher than this node are remembered: where a Join Table gets no
acknowledgement (a one-way link, a node that left), the next one is tried. Only nearer ones, so that no
path can form a loop.
"""

from operator import attrgetter

from roamcast.kit.tables import ExpiringDict, OnEvicted
from roamcast.strategy.odmrp.mesh.messages import HOLD_MAX, JoinRequest
from roamcast.units import Micros, NodeId

ALTERNATES_MAX = 3  # chosen by us


class PublisherRoute:
    """One publisher's round. `hops` is this node's distance, `told` what it has sent upstream."""

    __slots__ = (
        *("alternates", "bits", "expires_at", "hops", "lifetime", "request", "sequence", "told", "upstream"),
    )

    def __init__(
        self,
        request: JoinRequest,
        upstream: NodeId,
        expires_at: Micros,
        lifetime: Micros,
        bits: dict[NodeId, int],
    ) -> None:
        self.request = request
        self.sequence = request.sequence
        self.upstream = upstream
        self.hops = request.hops + 1
        # Forwarding group members demote when no Join Request comes within the timeout (section 3.6), so
        # everything that this round builds ends at the same instant.
        self.expires_at = expires_at
        self.lifetime = lifetime  # of the weakest link on the path from the publisher, or to its members
        self.bits = bits  # member to channel bit, as of `request.epoch`
        self.alternates: list[NodeId] = []
        self.told: dict[NodeId, int] = {}  # member to version

    def on_copy(self, request: JoinRequest, sender: NodeId) -> None:
        """The same request once more, or an older one."""
        nearer = request.sequence == self.sequence and request.hops < self.hops
        news = sender != self.upstream and sender not in self.alternates
        if nearer and news and len(self.alternates) < ALTERNATES_MAX:
            self.alternates.append(sender)

    def turn(self) -> bool:
        """Take another upstream node, if one is left."""
        if not self.alternates:
            return False
        self.upstream = self.alternates.pop(0)
        return True


class Routes:
    def __init__(
        self,
        publishers_max: int,
        on_evicted: OnEvicted[NodeId, PublisherRoute],
        hold_max: Micros = HOLD_MAX,
    ) -> None:
        self._hold_max = hold_max  # whatever a request asks for
        self._routes: ExpiringDict[NodeId, PublisherRoute] = ExpiringDict(
            publishers_max, on_evicted, attrgetter("expires_at")
        )

    def on_request(
        self, request: JoinRequest, sender: NodeId, now: Micros, lifetime: Micros
    ) -> PublisherRoute | None:
        """The new route, or None for a duplicate or an old request."""
        known = self._routes.get(request.publisher)
        if known is not None and request.sequence <= known.sequence and now < known.expires_at:
            known.on_copy(request, sender)
            return None
        if known is not None and known.request.epoch == request.epoch:
            bits = known.bits
        else:
            bits = {m: 2 << number for number, members in enumerate(request.channels) for m in members}
        expires_at = now + min(request.hold, self._hold_max)
        route = self._routes[request.publisher] = PublisherRoute(request, sender, expires_at, lifetime, bits)
        return route

    def standing(self, publisher: NodeId, now: Micros) -> PublisherRoute | None:
        route = self._routes.get(publisher)
        return route if route is not None and now < route.expires_at else None

    def publishers(self) -> list[NodeId]:
        return sorted(self._routes)

    def expire(self, now: Micros) -> None:
        self._routes.expire(now)

    def next_expiry(self) -> Micros | None:
        return self._routes.next_expiry()

    def __len__(self) -> int:
        return len(self._routes)
