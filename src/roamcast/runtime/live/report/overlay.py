"""The strategy's overlay as this node has it: its links and its own roles, from what the strategy records."""

from roamcast.trace import OverlayChanged
from roamcast.units import Micros, NodeId

LINKS_MAX = 4_096  # chosen by us; beyond, the oldest is forgotten


class OverlayWatch:
    def __init__(self) -> None:
        self.links: dict[NodeId, tuple[str, Micros]] = {}  # role of this end, and since when
        self.roles: set[str] = set()

    def add(self, record: OverlayChanged) -> None:
        match record.change:
            case "link_up" if record.peer is not None:
                self.links[record.peer] = (record.role, record.t)
                if len(self.links) > LINKS_MAX:
                    del self.links[next(iter(self.links))]
            case "link_down" if record.peer is not None:
                self.links.pop(record.peer, None)
            case "role_on":
                self.roles.add(record.role)
            case "role_off":
                self.roles.discard(record.role)
