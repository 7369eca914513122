"""Link sensing: whom we hear, and who hears us (RFC 3626, section 7); link hysteresis (section 14).

A status is never stored: it follows from deadlines and the clock, so no forgotten timer can leave a dead
link symmetric. Each of this node's interfaces has a set of its own, in which a link is named by the
neighbour's interface address.
"""

from roamcast.units import MILLISECOND, Micros
from roamcast.wire.olsr import Address, Hello, LinkType

# Plain numbers for speed: every HELLO received is compared with them.
ASYMMETRIC, SYMMETRIC, LOST = int(LinkType.ASYMMETRIC), int(LinkType.SYMMETRIC), int(LinkType.LOST)
PENDING: Micros = 1 << 62  # `lost_until` of a link that hysteresis does not accept
# Section 14.3 and 18.5.
SCALING = 0.5
THRESHOLD_HIGH = 0.8
THRESHOLD_LOW = 0.3
# More losses than this in a row leave no quality worth counting: 0.5 ** 8 is below 0.004.
LOSSES_MAX = 8
INTERVAL_MIN: Micros = 100 * MILLISECOND  # of HELLOs, whatever one claims: each silence costs a timer
NUMBERS = 65_536


class LinkTuple:
    """A link tuple (section 4.2.1). `main` is the neighbour's main address. No struct: each HELLO sets four
    fields, and of a class with slots that is faster."""

    __slots__ = (
        "heard_at",
        "heard_until",
        "lost_until",
        "main",
        "named_lost_until",
        "quality",
        "symmetric_until",
        "until",
    )

    def __init__(self, main: Address, until: Micros) -> None:
        self.main = main
        self.symmetric_until: Micros = 0  # L_SYM_time
        self.heard_until: Micros = 0  # L_ASYM_time
        self.heard_at: Micros = 0  # when the last HELLO came
        self.until = until  # L_time: then the tuple is removed
        self.lost_until: Micros = 0  # L_LOST_LINK_time (section 13): the link layer said so
        self.quality: LinkQuality | None = None  # with hysteresis (section 14)
        self.named_lost_until: Micros = 0  # with hysteresis: HELLOs name it as lost, and then not at all

    def status(self, now: Micros) -> LinkType:
        """As a HELLO says it: symmetric while both hear each other, asymmetric while we hear them."""
        if self.lost_until <= now < self.symmetric_until:
            return LinkType.SYMMETRIC
        return LinkType.ASYMMETRIC if self.lost_until <= now < self.heard_until else LinkType.LOST

    def is_symmetric(self, now: Micros) -> bool:
        return self.lost_until <= now < self.symmetric_until

    def is_named(self, now: Micros) -> bool:
        """Whether a HELLO mentions it: not where hysteresis has not accepted it yet (section 14.2)."""
        return self.lost_until < PENDING or now < self.named_lost_until

    def deadline(self, now: Micros) -> Micros:
        """When this link's part in the tables changes next, unless a HELLO comes first."""
        deadline = self.symmetric_until if self.lost_until <= now < self.symmetric_until else self.until
        return deadline if self.quality is None else min(deadline, self.quality.silent_at)

    def accept_or_reject(self, now: Micros, hold: Micros) -> None:
        """Accept or reject the link by its present quality (section 14.2)."""
        assert self.quality is not None
        if not self.quality.is_pending:
            if self.lost_until == PENDING:
                self.lost_until = 0
        elif self.lost_until < PENDING:
            self.lost_until = PENDING
            self.named_lost_until = min(self.until, now + hold)


class LinkSet:
    def __init__(
        self,
        own: Address,
        hold: Micros,
        links_max: int,
        lost_hold: Micros | None = None,
        *,
        failure_silence: Micros = 0,
        hysteresis: bool = False,
    ) -> None:
        self._own = own  # the address of the interface
        self._failure_silence = failure_silence
        self._has_hysteresis = hysteresis
        self.hold = hold  # NEIGHB_HOLD_TIME
        self._lost_hold = hold if lost_hold is None else lost_hold
        self._links_max = links_max
        self.table: dict[Address, LinkTuple] = {}

    def on_packet(self, source: Address, sequence: int, now: Micros) -> LinkTuple | None:
        """Section 14.3, with hysteresis: any packet of a known link speaks for it. The link, if known."""
        link = self.table.get(source)
        if link is not None and link.quality is not None:
            link.quality.on_packet(sequence, now)
            link.accept_or_reject(now, self.hold)
        return link

    def on_hello(
        self, source: Address, main: Address, hello: Hello, until: Micros, now: Micros, sequence: int = 0
    ) -> LinkTuple | None:
        """Section 7.1.1. `until` is the end of the HELLO's validity; None if the table is full."""
        link = self.table.get(source)
        if link is None:
            if len(self.table) >= self._links_max:
                return None
            link = self.table[source] = LinkTuple(main, until)
            if self._has_hysteresis:
                link.quality = LinkQuality(sequence)
                link.lost_until = PENDING
        if link.quality is not None:
            link.quality.on_hello(hello.interval, now)
        link.main = main
        link.heard_at = now
        link.heard_until = until
        code = hello.links.get(self._own)
        if code is not None:
            type = code & 3
            if type in (SYMMETRIC, ASYMMETRIC):
                link.symmetric_until = until
                link.until = until + self.hold
            elif type == LOST:
                link.symmetric_until = now  # they no longer hear us: this counts at once
        if link.until < until:
            link.until = until
        return link

    def on_failure(self, source: Address, now: Micros) -> LinkTuple | None:
        """Section 13: the link layer could not deliver. The link counts as lost for the hold time. What was
        heard before is void; otherwise, with a hold time shorter than the RFC's, the link would come back.

        With `failure_silence`, the link is lost only if no HELLO comes for that long after the last one: on a
        full medium frames fail over good links too, and what follows from a lost link would fill it more.
        """
        link = self.table.get(source)
        if link is not None:
            believed_at = link.heard_at + self._failure_silence
            if now < believed_at:
                link.heard_until = min(link.heard_until, believed_at)
                link.symmetric_until = min(link.symmetric_until, believed_at)
                return link
            if link.lost_until < PENDING:
                link.lost_until = now + self._lost_hold
            link.heard_until = link.symmetric_until = min(link.symmetric_until, now)
            link.until = max(link.until, now + self.hold)
        return link

    def is_symmetric_to(self, main: Address, now: Micros) -> bool:
        """Over any of the neighbour's interfaces."""
        return any(link.main == main and link.is_symmetric(now) for link in self.table.values())

    def on_silence(self, now: Micros) -> None:
        """With hysteresis, count silence on links over which nothing came for too long."""
        for link in self.table.values():
            if link.quality is not None and link.quality.silent_at <= now:
                link.quality.on_silence(now)
                link.accept_or_reject(now, self.hold)

    def purge(self, now: Micros) -> Micros | None:
        """Forget expired links; returns the next deadline, if any link is left."""
        ended: list[Address] = []
        deadlines: list[Micros] = []
        for source, link in self.table.items():
            if link.quality is None and link.lost_until <= now < link.symmetric_until:
                deadlines.append(link.symmetric_until)  # `deadline`, written out for nearly all links
            elif link.until <= now:
                ended.append(source)
            else:
                deadlines.append(link.deadline(now))
        for source in ended:
            del self.table[source]
        return min(deadlines, default=None)


class LinkQuality:
    """L_link_quality and L_link_pending of one link (section 14): it counts only once enough packets came
    over it.

    A link that lets one HELLO in five through would come and go with each of them. The quality is an
    average over the packets, 1 for each that came and 0 for each that was lost: losses show as gaps in the
    packet numbers, and as silence. The RFC counts a loss after one HELLO interval of silence; here it is
    one and a half, because a packet that is merely late is none."""

    __slots__ = ("_interval", "_sequence", "is_pending", "silent_at", "value")

    def __init__(self, sequence: int) -> None:
        self.value = SCALING
        self.is_pending = True
        self._sequence = sequence  # of the latest packet
        self._interval: Micros = INTERVAL_MIN  # of the neighbour's HELLOs
        self.silent_at: Micros = 0  # when the next packet counts as lost

    def on_packet(self, sequence: int, now: Micros) -> None:
        """A packet came; those whose numbers were left out are lost. A number that goes back is no loss: the
        neighbour has restarted, or two packets changed places."""
        self._wait(now)
        ahead = (sequence - self._sequence) % NUMBERS
        if ahead == 0:
            return
        self._sequence = sequence
        if ahead < NUMBERS // 2:
            self.value *= (1 - SCALING) ** min(ahead - 1, LOSSES_MAX)
        self.value = (1 - SCALING) * self.value + SCALING
        self._judge()

    def on_hello(self, interval: Micros, now: Micros) -> None:
        self._interval = max(interval, INTERVAL_MIN)
        self._wait(now)

    def on_silence(self, now: Micros) -> None:
        self.value *= 1 - SCALING
        self.silent_at = now + self._interval
        self._judge()

    def _wait(self, now: Micros) -> None:
        self.silent_at = now + self._interval * 3 // 2

    def _judge(self) -> None:
        if self.value > THRESHOLD_HIGH:
            self.is_pending = False
        elif self.value < THRESHOLD_LOW:
            self.is_pending = True
