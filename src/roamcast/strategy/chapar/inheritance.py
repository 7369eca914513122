"""The role of this node: appointed, dismissed (Chapar, section 4.2, *Inheritance and Dismissal*,
*Check-out*).

A new broker inherits the tables of a neighbouring one. A dismissed broker keeps its tables for the dismissal
transient time, and drops them once another broker has all that they hold. The transitions are a table
(`brokers.py`); the exchange is that of the table consistency check (`consistency_check.py`).
"""

from roamcast.kit.protocol import Timer
from roamcast.strategy.chapar.attachment import Attachment
from roamcast.strategy.chapar.brokers import Role
from roamcast.strategy.chapar.consistency_check import ConsistencyCheck
from roamcast.strategy.chapar.memorized_events import MemorizedEvents
from roamcast.strategy.chapar.messages import Lists
from roamcast.strategy.chapar.part import Part, Shared
from roamcast.trace import OverlayChanged
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

# Chosen by us.
LOOK_DELAY: Micros = 50 * MILLISECOND  # routes change in bursts; one look serves a burst
CHECK_OUT_TIMEOUT: Micros = 2 * SECOND  # from sending a broker what it lacks to asking again


class Inheritance(Part):
    def __init__(
        self,
        shared: Shared,
        attachment: Attachment,
        memorized: MemorizedEvents,
        consistency: ConsistencyCheck,
    ) -> None:
        super().__init__(shared)
        self._attachment = attachment
        self._memorized = memorized
        self._consistency = consistency
        self._role_interval = micros(self._in_force.role_interval)
        self._look_timer = Timer(self._host, self._look_due)
        self._is_look_due = False
        self._looked_at: Micros = -self._role_interval
        self._dismissal_timer = Timer(self._host, self._end_transient_time)
        self._check_out_timer = Timer(self._host, self._check_out)
        self._is_stopping = False
        self._has_checked_out = False  # whether a broker has said what it lacks, since this node stops

    def look_soon(self) -> None:
        if not self._is_look_due:
            self._is_look_due = True
            self._look_timer.at(max(self._host.now() + LOOK_DELAY, self._looked_at + self._role_interval))

    def look(self) -> None:
        """Compute the brokers from the current routes, and whether this node is one."""
        if self._is_stopping:
            return
        self._looked_at = self._host.now()
        brokers = self._brokers
        brokers.elect()
        is_elected = self._host.node in brokers.elected
        if is_elected and not brokers.is_broker:
            self._turn("appointed")
        elif brokers.is_broker and not is_elected:
            self._turn("dismissed")
        self._attachment.choose()
        self._consistency.look()

    def on_lists(self, sender: NodeId, lists: Lists) -> None:
        lacking = self._consistency.on_lists(sender, lists)
        if lacking is None or self._brokers.is_broker:
            return
        self._has_checked_out = True
        if self._brokers.role is Role.LEAVING and not lacking:
            self._check_out_timer.cancel()
            self._turn("checked out")

    def stop(self) -> None:
        """A node with tables checks out, as if dismissed: another broker gets what only this node has."""
        self._is_stopping = True
        self._has_checked_out = False
        if self._brokers.is_broker:
            self._turn("dismissed")
        elif self._brokers.has_tables:
            self._check_out()

    @property
    def is_leaving(self) -> bool:
        if not self._is_stopping or not self._brokers.has_tables or self._attachment.broker is None:
            return False
        return not self._has_checked_out or len(self._messenger.transfers) > 0

    def _look_due(self) -> None:
        self._is_look_due = False
        self.look()

    def _turn(self, cause: str) -> None:
        """One transition of the role, with all that begins or ends with it."""
        before = self._brokers.role
        self._brokers.turn(cause)
        match before, self._brokers.role:
            case _, Role.BROKER:
                self._dismissal_timer.cancel()
                self._check_out_timer.cancel()
                self._trace("role_on")
                self._tables.enter_own()
                self._memorized.adopt()
                if before is Role.NODE:
                    self._inherit()
            case Role.BROKER, _:
                self._trace("role_off")
                self._dismissal_timer.after(micros(self._options.dismissal_transient_time))
                self._attachment.choose()
                self._check_out()
            case _, Role.NODE:
                self._tables.clear()

    def _inherit(self) -> None:
        adjacent = self._brokers.adjacent()
        if adjacent:
            broker = self._attachment.broker
            self._consistency.inherit(broker if broker in adjacent else adjacent[0])

    def _end_transient_time(self) -> None:
        self._turn("time is over")
        self._check_out()

    def _check_out(self) -> None:
        """Send a broker what it lacks. A node in `LEAVING` repeats this until the broker lacks nothing."""
        if self._attachment.broker is not None:
            must_answer = self._is_stopping or self._brokers.role is Role.LEAVING
            self._consistency.check_one(self._attachment.broker, must_answer=must_answer)
        if self._brokers.role is Role.LEAVING:
            self._check_out_timer.after(CHECK_OUT_TIMEOUT)

    def _trace(self, change: str) -> None:
        self._host.trace(OverlayChanged(self._host.now(), self._host.node, change, role="broker"))
