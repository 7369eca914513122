"""The mesh as its nodes' newest traces have it: who hears whom, the overlay, roles, published positions.

Part of the state of a watched run (`windows.py`). Of each node the newest segment counts; an older one that
comes later changes nothing. A node that begins anew, or stops, has no neighbours until it says so.
"""

from typing import Any

import msgspec

from roamcast.lab.live.extract import Extract
from roamcast.trace import OverlayChanged, Published
from roamcast.units import Micros, NodeId

NODES_MAX = 2_000  # in the state and on the screen; beyond, the most silent are left out; chosen by us
PLACES_MAX = 4_000
TOPIC = "position/"  # `docs/use/web.md`: `lat` and `lon`, or `x` and `y`, as attributes


class MeshNode(msgspec.Struct):
    """Times are Unix time in microseconds."""

    name: str = ""
    boot: int = 0
    newest: Micros = 0
    is_up: bool = True  # False: it stopped in good order
    hears: list[NodeId] = []
    links: list[NodeId] = []  # of the overlay
    roles: list[str] = []


class MeshPlace(msgspec.Struct):
    """A position that somebody published under a name."""

    at: Micros
    publisher: NodeId
    x: float  # metres, or degrees east
    y: float  # metres, or degrees north
    in_degrees: bool


class MeshState(msgspec.Struct):
    nodes: dict[NodeId, MeshNode] = {}
    places: dict[str, MeshPlace] = {}

    def take(self, one: Extract, base: Micros) -> None:
        """A segment; `base` moves its times to Unix time."""
        for event in one.publications:
            if event.topic.startswith(TOPIC):
                self._place(event, event.t + base)
        head = one.head
        node = self.nodes.setdefault(head.node, MeshNode())
        closed = one.closed + base
        if (head.boot, closed) <= (node.boot, node.newest):
            return
        if head.boot != node.boot:
            node = self.nodes[head.node] = MeshNode(head.name, head.boot)
        node.newest, node.is_up = closed, not one.stopped
        for change in one.overlay:
            _apply(node, change)
        if one.stopped:
            node.hears, node.links, node.roles = [], [], []
        while len(self.nodes) > NODES_MAX:
            del self.nodes[min(self.nodes, key=lambda number: self.nodes[number].newest)]

    def document(self) -> str:
        """The mesh as JSON, for a page."""
        return msgspec.json.encode(
            {
                "nodes": [{"number": number, **_fields(node)} for number, node in sorted(self.nodes.items())],
                "places": {name: _fields(place) for name, place in self.places.items()},
            }
        ).decode()

    def _place(self, event: Published, at: Micros) -> None:
        name = event.topic.removeprefix(TOPIC)
        place = _place_in(msgspec.json.decode(event.attributes), at, event.publisher)
        known = self.places.get(name)
        if place is None or (known is not None and known.at > at):
            return
        self.places.pop(name, None)
        self.places[name] = place  # the newest last
        while len(self.places) > PLACES_MAX:
            del self.places[next(iter(self.places))]


def _place_in(fields: dict[str, Any], at: Micros, publisher: NodeId) -> MeshPlace | None:
    for x, y, x_max, y_max in (("lon", "lat", 180.0, 89.0), ("x", "y", 1e9, 1e9)):
        east, north = fields.get(x), fields.get(y)
        if isinstance(east, int | float) and isinstance(north, int | float):
            if abs(east) <= x_max and abs(north) <= y_max:
                return MeshPlace(at, publisher, float(east), float(north), x == "lon")
            return None
    return None


def _apply(node: MeshNode, record: OverlayChanged) -> None:
    if record.change in ("role_on", "role_off"):
        node.roles = [role for role in node.roles if role != record.role]
        node.roles += [record.role] if record.change == "role_on" else []
        return
    if record.peer is None:
        return
    match record.change:
        case "neighbour_up":
            node.hears = sorted({*node.hears, record.peer})
        case "neighbour_down":
            node.hears = [peer for peer in node.hears if peer != record.peer]
        case "link_up":
            node.links = sorted({*node.links, record.peer})
        case "link_down":
            node.links = [peer for peer in node.links if peer != record.peer]


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}
