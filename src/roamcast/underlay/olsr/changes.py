"""What has changed since it was last computed, said or reported; and the one timer for all deadlines.

Tables that follow from others (our relays, the routes) are only marked here, and computed when somebody asks.
"""

from roamcast.host import Host
from roamcast.units import Micros
from roamcast.wire.olsr import Address

NEVER: Micros = 1 << 62


class TableChanges:
    def __init__(self) -> None:
        self.relays_are_stale = False
        self.routes_are_stale = False
        self.to_say = False  # whether the next HELLO or TC may differ from the last one
        self.to_report = False  # whether the listener must hear of routes or relays
        self.neighbours: list[tuple[bool, Address]] = []  # gained (True) or lost, to be reported

    def mark_neighbourhood(self) -> None:
        self.relays_are_stale = True
        self.to_say = True
        self.mark_routes()

    def mark_routes(self) -> None:
        self.routes_are_stale = True
        self.to_report = True

    def mark_selectors(self) -> None:
        self.to_report = self.to_say = True


class PurgeTimer:
    """Set for the earliest of all deadlines. A renewal moves a deadline but not the timer, which then finds
    nothing to do and is set for the next."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.at: Micros = NEVER

    def by(self, deadline: Micros) -> None:
        if deadline < self.at:
            self.at = deadline
            self._host.set_timer("purge", deadline)

    def on_timer(self) -> None:
        self.at = NEVER
