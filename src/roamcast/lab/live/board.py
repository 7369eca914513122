"""The whole mesh for one screen: what the stream gave last, with a place for every node, as a document.

Nodes stand where they last said that they are (`position/NAME`). If not even half of them did, they stand
where a layout of their links puts them, which begins with the last one, so that a change moves few.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.lab.live.mesh import MeshNode, MeshPlace
from roamcast.lab.live.streaming import WatchedMesh, read_meshes, read_unread, read_windows
from roamcast.lab.play.layout import SIDE, arranged
from roamcast.units import SECOND, NodeId
from roamcast.world.formats import MapProjection

WINDOWS_SHOWN = 30  # of each run; chosen by us, as is the next
UNREAD_SHOWN = 20


class _NumberedNode(MeshNode):
    number: NodeId = 0


class _MeshDocument(msgspec.Struct):
    nodes: list[_NumberedNode]
    places: dict[str, MeshPlace]


class _Place(NamedTuple):
    x: float
    y: float


class MeshBoard:
    """Filled by the stream's thread, read by a server's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        self._meshes: dict[tuple[str, str], dict[str, Any]] = {}
        self._drawn: dict[tuple[str, str], dict[NodeId, _Place]] = {}  # by layout
        self._unread: list[str] = []

    @classmethod
    def of(cls, out: str) -> "MeshBoard":
        """A board with what an earlier watch left in its folder."""
        board = cls()
        board.on_table(read_windows(out))
        for mesh in read_meshes(out):
            board.on_mesh(mesh)
        for row in read_unread(out).to_pylist():
            board.on_unread(f"{row['file']}: {row['reason']}" if row["file"] else row["reason"])
        return board

    def on_table(self, changed: pa.Table) -> None:
        with self._lock:
            for row in changed.to_pylist():
                windows = self._windows.setdefault((row.pop("strategy"), row.pop("run")), {})
                windows[row["window"]] = row
                while len(windows) > WINDOWS_SHOWN:
                    del windows[min(windows)]

    def on_mesh(self, mesh: WatchedMesh) -> None:
        found = msgspec.json.decode(mesh.document, type=_MeshDocument)
        key = (mesh.strategy, mesh.run)
        places = _published({node.name for node in found.nodes}, found.places)
        with self._lock:
            by_position = 2 * len(places) >= len(found.nodes) > 0
            drawn: dict[NodeId, _Place]
            if by_position:
                drawn = {node.number: places[node.name] for node in found.nodes if node.name in places}
            else:
                drawn = self._drawn[key] = _laid_out(found.nodes, self._drawn.get(key, {}))
            self._meshes[key] = {
                "is_by_position": by_position,
                "nodes": [
                    {**msgspec.structs.asdict(node), "place": drawn.get(node.number)} for node in found.nodes
                ],
            }

    def on_unread(self, line: str) -> None:
        with self._lock:
            self._unread = [*self._unread, line][-UNREAD_SHOWN:]

    def document(self) -> bytes:
        """JSON, for the page."""
        with self._lock:
            runs = [
                {
                    "strategy": strategy,
                    "run": run,
                    **self._meshes.get((strategy, run), {"is_by_position": False, "nodes": []}),
                    "windows": [row for _, row in sorted(self._windows.get((strategy, run), {}).items())],
                }
                for strategy, run in sorted({*self._windows, *self._meshes})
            ]
            now = int(time.time() * SECOND)
            return msgspec.json.encode({"now": now, "runs": runs, "unread": self._unread})


def _published(names: set[str], places: Mapping[str, MeshPlace]) -> dict[str, _Place]:
    """In metres, the places of nodes; in degrees or in metres, whichever more of them are in."""
    own = {name: place for name, place in places.items() if name in names}
    in_degrees = [name for name, place in own.items() if place.in_degrees]
    if 2 * len(in_degrees) < len(own):
        return {name: _Place(place.x, place.y) for name, place in own.items() if not place.in_degrees}
    if not in_degrees:
        return {}
    latitude = np.array([own[name].y for name in in_degrees])
    longitude = np.array([own[name].x for name in in_degrees])
    east, north = MapProjection.around(latitude, longitude).to_metres(latitude, longitude)
    return {name: _Place(x, y) for name, x, y in zip(in_degrees, east.tolist(), north.tolist(), strict=True)}


def _laid_out(nodes: list[_NumberedNode], before: Mapping[NodeId, _Place]) -> dict[NodeId, _Place]:
    """New nodes begin on the circle, the others where they were."""
    index = {node.number: at for at, node in enumerate(nodes)}
    weights = np.zeros((len(nodes), len(nodes)))
    for node in nodes:
        for peer in {*node.hears, *node.links} & index.keys():
            weights[index[node.number], index[peer]] = weights[index[peer], index[node.number]] = 1.0
    start = None
    if before.keys() & index.keys():
        angles = 2 * np.pi * np.arange(len(nodes)) / max(len(nodes), 1)
        start = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        for number in before.keys() & index.keys():
            start[index[number]] = [2 * before[number].x / SIDE - 1, 2 * before[number].y / SIDE - 1]
    xs, ys = arranged(weights, start)
    return {node.number: _Place(float(xs[at]), float(ys[at])) for at, node in enumerate(nodes)}
