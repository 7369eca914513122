"""Where frames come faster than this node handles them, it says so: to its applications and to the mesh.

What counts: datagrams that wait in the kernel, or that it dropped, because we read them too late, and
frames for which a queue had no room. A report is a record of its own datagram (`frames.py`), passed on once
by every node, at most `HOPS_MAX` times. It names nobody: all who publish slow down
(`roamcast/pressure.py`).
"""

import asyncio
from collections.abc import Callable

from roamcast.event import Publication
from roamcast.kit.tables import BoundedDict
from roamcast.pressure import REFUSED_FROM, Allowance, priority_of
from roamcast.runtime.live.air.air import Air
from roamcast.runtime.live.air.frames import CongestionReport
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.world import NodeWorld, UnreadDatagrams
from roamcast.trace import DropReason
from roamcast.units import NodeId

# Chosen by us.
LOOK_SECONDS = 0.2
WAITING_BYTES = 128 * 1024  # unread: with datagrams of 1,400 octets a hundred, or 50 ms of a busy node
HOPS_MAX = 16
JITTER_SECONDS = 0.02  # a report waits up to this before it is passed on
REPORTS_KEPT = 1_024  # numbers of reports, so that each is passed on once
PASSED_ON_MAX = 20  # reports per second
BULK_UNSENT_BYTES = 16 * 1024  # more than this in the kernel: an event would wait behind it
BULK_PAUSE_SECONDS = 0.005


class CongestionWatch:
    """The `PublishPressure` of a live node."""

    def __init__(
        self,
        world: NodeWorld,
        node: NodeId,
        counters: Counters,
        air: Air,
        broadcast: Callable[[CongestionReport], None],
    ) -> None:
        self._world = world
        self._loop = world.loop
        self._node = node
        self._counters = counters
        self._air = air
        self._broadcast = broadcast
        self.allowance = Allowance()
        self._number = world.random.getrandbits(31)
        self._known: BoundedDict[tuple[NodeId, int], None] = BoundedDict(REPORTS_KEPT, lambda *_: None)
        self._passed_on = 0  # in this second
        self._second = 0
        self._lost = 0.0
        self._waited = 0
        self._timer: asyncio.TimerHandle | None = None
        self._shed = counters.counter("publications_shed_total")
        self._slowed = counters.counter("publications_slowed_seconds_total")
        counters.gauge("publish_rate_allowed", lambda: self.allowance.rate or 0)

    def start(self) -> None:
        self._lost = self._losses(self._air.unread())
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # For gateways.

    def sheds(self, publication: Publication) -> bool:
        allowance = self.allowance
        if allowance.rate is None:  # every publication fits; `_look` tells the time
            allowance.counted += 1
            return False
        if allowance.take(self._loop.time(), priority_of(publication)):
            return False
        self._shed.value += 1
        return True

    def charge(self) -> float:
        allowance = self.allowance
        if allowance.rate is None:
            allowance.counted += 1
            return 0.0
        wait = allowance.charge(self._loop.time())
        self._slowed.value += wait
        return wait

    def bulk_wait(self) -> float:
        if self._air.unsent() > BULK_UNSENT_BYTES:
            return BULK_PAUSE_SECONDS
        return self.allowance.bulk_wait(self._loop.time())

    @property
    def refuses(self) -> bool:
        return self.allowance.debt >= REFUSED_FROM

    @property
    def why(self) -> str:
        rate = self.allowance.rate
        return (
            "the mesh is slower than its publishers: this node may publish "
            f"{'at any rate' if rate is None else f'{rate:.0f} events per second'} now"
        )

    # From the air.

    def on_report(self, report: CongestionReport) -> None:
        key = (report.node, report.number)
        if report.node == self._node or key in self._known:
            return
        self._known[key] = None
        self._counters.count("congestion_reports_total", origin="mesh")
        self.allowance.on_congestion(self._loop.time())
        second = int(self._loop.time())
        if second != self._second:
            self._second, self._passed_on = second, 0
        if report.hops < HOPS_MAX and self._passed_on < PASSED_ON_MAX:
            self._passed_on += 1
            further = report._replace(hops=report.hops + 1)
            self._loop.call_later(self._world.random.random() * JITTER_SECONDS, self._broadcast, further)

    # Private.

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        self.allowance.advance(self._loop.time())
        unread = self._air.unread()
        lost = self._losses(unread)
        # If what waits is getting less, no report is needed: the publishers are slow enough already.
        grows = unread.waiting_bytes > max(WAITING_BYTES, self._waited)
        self._waited = unread.waiting_bytes
        if lost > self._lost or grows:
            self._counters.count("congestion_reports_total", origin="own")
            self.allowance.on_congestion(self._loop.time())
            self._number = (self._number + 1) & 0xFFFF_FFFF
            self._broadcast(CongestionReport(self._node, self._number, 0))
        self._lost = lost  # it falls when the sockets were opened anew

    def _losses(self, unread: UnreadDatagrams) -> float:
        return (
            unread.dropped
            + self._counters.value("datagrams_unsent_total", reason="queue_full")
            + self._counters.value("drops_total", reason=DropReason.QUEUE_FULL.value)
        )
