"""Link sensing: whom we hear, and who hears us (RFC 3626, section 7).

A status is never stored: it follows from deadlines and the clock, so no forgotten timer can leave a dead
link symmetric. This node has one interface, so a link is named by the neighbour's interface address.
Left out: link hysteresis (section 14).
"""

from roamcast.units import Micros
from roamcast.wire.olsr import Address, Hello, LinkType

# Plain numbers for speed: every HELLO received is compared with them.
ASYMMETRIC, SYMMETRIC, LOST = int(LinkType.ASYMMETRIC), int(LinkType.SYMMETRIC), int(LinkType.LOST)


class LinkTuple:
    """A link tuple (section 4.2.1). `main` is the neighbour's main address."""

    __slots__ = ("heard_until", "lost_until", "main", "symmetric_until", "until")

    def __init__(self, main: Address, until: Micros) -> None:
        self.main = main
        self.symmetric_until: Micros = 0  # L_SYM_time
        self.heard_until: Micros = 0  # L_ASYM_time
        self.until = until  # L_time: then the tuple is removed
        self.lost_until: Micros = 0  # L_LOST_LINK_time (section 13): the link layer said so

    def status(self, now: Micros) -> LinkType:
        """As a HELLO says it: symmetric while both hear each other, asymmetric while we hear them."""
        if self.lost_until <= now < self.symmetric_until:
            return LinkType.SYMMETRIC
        return LinkType.ASYMMETRIC if self.lost_until <= now < self.heard_until else LinkType.LOST

    def is_symmetric(self, now: Micros) -> bool:
        return self.lost_until <= now < self.symmetric_until

    def deadline(self, now: Micros) -> Micros:
        """When this link's part in the tables changes next, unless a HELLO comes first."""
        return self.symmetric_until if self.is_symmetric(now) else self.until


class LinkSet:
    def __init__(self, own: Address, hold: Micros, links_max: int, lost_hold: Micros | None = None) -> None:
        self._own = own
        self._hold = hold  # NEIGHB_HOLD_TIME
        self._lost_hold = hold if lost_hold is None else lost_hold
        self._links_max = links_max
        self.table: dict[Address, LinkTuple] = {}

    def on_hello(
        self, source: Address, main: Address, hello: Hello, until: Micros, now: Micros
    ) -> LinkTuple | None:
        """Section 7.1.1. `until` is the end of the HELLO's validity; None if the table is full."""
        link = self.table.get(source)
        if link is None:
            if len(self.table) >= self._links_max:
                return None
            link = self.table[source] = LinkTuple(main, until)
        link.main = main
        link.heard_until = until
        code = hello.links.get(self._own)
        if code is not None:
            type = code & 3
            if type in (SYMMETRIC, ASYMMETRIC):
                link.symmetric_until = until
                link.until = until + self._hold
            elif type == LOST:
                link.symmetric_until = now  # they no longer hear us: this counts at once
        if link.until < until:
            link.until = until
        return link

    def on_failure(self, source: Address, now: Micros) -> LinkTuple | None:
        """Section 13: the link layer could not deliver. The link counts as lost for the hold time. What was
        heard before is void; otherwise, with a hold time shorter than the RFC's, the link would come back."""
        link = self.table.get(source)
        if link is not None:
            link.lost_until = now + self._lost_hold
            link.heard_until = link.symmetric_until = min(link.symmetric_until, now)
            link.until = max(link.until, now + self._hold)
        return link

    def is_symmetric_to(self, main: Address, now: Micros) -> bool:
        """Over any of the neighbour's interfaces."""
        return any(link.main == main and link.is_symmetric(now) for link in self.table.values())

    def purge(self, now: Micros) -> Micros | None:
        """Forget expired links; returns the next deadline, if any link is left."""
        ended = [source for source, link in self.table.items() if link.until <= now]
        for source in ended:
            del self.table[source]
        return min((link.deadline(now) for link in self.table.values()), default=None)
