"""Static: nodes that never move, at given places or wherever the seed puts them."""

from random import Random

from roamcast.units import SECOND, Micros
from roamcast.world.mobility.model import Area, Model, bad, check_point, node_streams
from roamcast.world.mobility.movement.path import PathBuilder, Piece, Point
from roamcast.world.mobility.movement.waypoints import Rectangle
from roamcast.world.trajectory import Motion, Trajectory


class Static(Model, frozen=True, kw_only=True, tag="static"):
    positions: tuple[Point, ...] | None = None  # metres, one per node; without it: uniform in the area

    def check(self, nodes: int, area: Area) -> None:
        if self.positions is None:
            return
        if len(self.positions) != nodes:
            raise bad("positions", f"has {len(self.positions)} points; allowed is one per node, {nodes}")
        for k, (x, y) in enumerate(self.positions):
            check_point(f"positions[{k}]", x, y, area)

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        anywhere = Rectangle(area)
        places = self.positions or [anywhere.any(own) for own in node_streams(random, nodes)]
        return Motion([_standing(place, duration) for place in places])


def _standing(place: Point, duration: Micros) -> Trajectory:
    path = PathBuilder(place, duration)
    path.move(Piece(duration / SECOND, place))
    return path.trajectory()
