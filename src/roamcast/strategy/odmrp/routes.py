"""What Join Requests and Join Tables leave at a node: the reverse paths to publishers, and the branches that
it forwards for.

**Routes** (section 3.5.1). The first copy of a Join Request to arrive came by the path of shortest delay; its
sender becomes the upstream node, and later copies are duplicates. Beyond the paper, up to `ALTERNATES_MAX`
senders of duplicates that are nearer to the publisher than this node are remembered: where a Join Table gets
no acknowledgement (a one-way link, a node that left), the next one is tried. Only nearer ones, so that no
path can form a loop.

**The forwarding group** (section 3.5.2). A branch is a member whose Join Table came through this node. The FG
flag for a publisher is set while one of its branches has not expired; no message ends it.

**Mobility prediction** (ODMRP draft). Two nodes that keep their velocities and hear each other within `range`
stay connected for

    D = (-(ab + cd) + sqrt((a² + c²) r² - (ad - bc)²)) / (a² + c²)

with a, c the differences of velocity and b, d those of position along x and y.
"""

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec

from roamcast.host import Position
from roamcast.kit.tables import ExpiringDict, OnEvicted
from roamcast.strategy.odmrp.messages import HOLD_MAX, UNLIMITED, JoinRequest, SenderPosition
from roamcast.units import SECOND, Micros, NodeId

ALTERNATES_MAX = 3  # chosen by us
SQUARED_SPEED_MAX = 1e12
"""(m/s)²: a thousand kilometres per second. Chosen by us: anything faster is a false claim."""


class PublisherRoute(msgspec.Struct, eq=False):
    """One publisher's round."""

    request: JoinRequest
    upstream: NodeId
    # Forwarding group members demote when no Join Request comes within the timeout (section 3.6), so
    # everything that this round builds ends at the same instant.
    expires_at: Micros
    lifetime: Micros  # of the weakest link on the path from the publisher, or to its members
    bits: dict[NodeId, int]  # member to channel bit, as of `request.epoch`
    alternates: list[NodeId] = []
    told: dict[NodeId, int] = {}  # what this node has sent upstream: member to version

    def on_copy(self, request: JoinRequest, sender: NodeId) -> None:
        """The same request once more, or an older one."""
        nearer = request.sequence == self.request.sequence and request.hops <= self.request.hops
        news = sender != self.upstream and sender not in self.alternates
        if nearer and news and len(self.alternates) < ALTERNATES_MAX:
            self.alternates.append(sender)

    def turn(self) -> bool:
        """Take another upstream node, if one is left."""
        if not self.alternates:
            return False
        self.upstream = self.alternates.pop(0)
        return True


class Routes(ExpiringDict[NodeId, PublisherRoute]):
    """The routes to publishers, by publisher."""

    def __init__(
        self, most: int, on_evicted: OnEvicted[NodeId, PublisherRoute], hold_max: Micros = HOLD_MAX
    ) -> None:
        super().__init__(most, on_evicted, attrgetter("expires_at"))
        self._hold_max = hold_max  # whatever a request asks for

    def on_request(
        self, request: JoinRequest, sender: NodeId, now: Micros, lifetime: Micros
    ) -> PublisherRoute:
        """The route of a new round."""
        known = self.get(request.publisher)
        if known is not None and known.request.epoch == request.epoch:
            bits = known.bits
        else:
            bits = {m: 2 << number for number, members in enumerate(request.channels) for m in members}
        route = PublisherRoute(request, sender, now + min(request.hold, self._hold_max), lifetime, bits)
        self[request.publisher] = route
        return route

    def standing(self, publisher: NodeId, now: Micros) -> PublisherRoute | None:
        route = self.get(publisher)
        return route if route is not None and now < route.expires_at else None


class Branch(msgspec.Struct, eq=False):
    """A member below this node, and the version of its subscriptions."""

    version: int
    expires_at: Micros


NO_BRANCHES: Mapping[NodeId, Branch] = {}


class ForwardingGroup:
    """Members by publisher. A full table refuses new ones: a flood of forged members pushes out nobody."""

    def __init__(self, publishers_max: int, members_max: int) -> None:
        self._publishers_max = publishers_max
        self._members_max = members_max
        self._branches: dict[NodeId, dict[NodeId, Branch]] = {}

    def refresh(self, publisher: NodeId, member: NodeId, version: int, expires_at: Micros) -> bool:
        """A Join Table named this node as the next hop of `member`. False if the table is full."""
        branches = self._branches.get(publisher)
        if branches is None:
            if len(self._branches) >= self._publishers_max:
                return False
            branches = self._branches[publisher] = {}
        branch = branches.get(member)
        if branch is not None:
            branch.version, branch.expires_at = version, expires_at
            return True
        if len(branches) >= self._members_max:
            return False
        branches[member] = Branch(version, expires_at)
        return True

    def has(self, publisher: NodeId, member: NodeId, version: int) -> bool:
        """Whether the member is a branch already, with the same subscriptions."""
        branch = self._branches.get(publisher, NO_BRANCHES).get(member)
        return branch is not None and branch.version == version

    def branches(self, publisher: NodeId) -> Mapping[NodeId, Branch]:
        """The members, in the order of arrival; some may have expired."""
        return self._branches.get(publisher, NO_BRANCHES)

    def names_any(self, publisher: NodeId, named: Sequence[NodeId], now: Micros) -> bool:
        branches = self.branches(publisher)
        return any(now < branches[member].expires_at for member in named if member in branches)

    def stands(self, now: Micros) -> bool:
        """Whether this node forwards for any publisher."""
        return any(
            now < branch.expires_at for branches in self._branches.values() for branch in branches.values()
        )

    def expire(self, now: Micros) -> None:
        for publisher, branches in list(self._branches.items()):
            for member in [m for m, branch in branches.items() if branch.expires_at <= now]:
                del branches[member]
            if not branches:
                del self._branches[publisher]

    def next_expiry(self) -> Micros | None:
        return min(
            (branch.expires_at for branches in self._branches.values() for branch in branches.values()),
            default=None,
        )

    def __len__(self) -> int:
        return sum(len(branches) for branches in self._branches.values())


def link_lifetime(one: Position | SenderPosition, other: Position | SenderPosition, range: float) -> Micros:
    """Until the link breaks, or `UNLIMITED`; 0 if they are out of range already or a number is NaN."""
    a, b = one.vx - other.vx, one.x - other.x
    c, d = one.vy - other.vy, one.y - other.y
    squared_speed = a * a + c * c
    # Written so that NaN fails it too: positions from messages are not to be trusted.
    if not (squared_speed <= SQUARED_SPEED_MAX and b * b + d * d <= range * range):
        return 0
    if squared_speed == 0:
        return UNLIMITED
    # Never negative while they are in range, except by rounding at the edge.
    across = a * d - b * c
    discriminant = max(squared_speed * range * range - across * across, 0.0)
    lasts = (math.sqrt(discriminant) - (a * b + c * d)) / squared_speed
    return UNLIMITED if lasts >= UNLIMITED / SECOND else max(0, int(lasts * SECOND))
