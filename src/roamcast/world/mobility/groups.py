"""Models of groups, in which nodes roam around something that moves: nomadic community and column.

A member is at its reference plus an offset that walks about in a disc. It stays in the disc between
knots too: reference and member are both linear between two neighbouring knots of the member, hence so
is their difference, and a disc is convex. The same holds for the area. So it is enough that every knot
keeps the rules.
"""

from itertools import pairwise
from random import Random

from roamcast.units import Micros
from roamcast.world.mobility.model import (
    Area,
    Model,
    Range,
    check_number,
    check_trips,
    node_streams,
    stream,
)
from roamcast.world.mobility.path import Point, along, distance, place_at, window
from roamcast.world.mobility.waypoints import Disc, Rectangle, Start, stationary_start, walk, walk_on
from roamcast.world.trajectory import Motion, Trajectory


class Nomadic(Model, frozen=True, kw_only=True, tag="nomadic"):
    """Nomadic community: everyone roams around one chief, who moves by random waypoint.

    Scenario 3 of the acyclic overlay (6.2.1): at most 50 m from the chief, who is chosen before the run and
    stays chief (a guide and the visitors of a museum). Node 0 is the chief and moves by random waypoint. A
    member walks between uniform points of the disc around the chief, and the disc moves with the chief. The
    paper does not say how chief and members walk, so the speeds and rests are ours.

    Chief and offsets both start stationary and are independent of each other, so the group does.
    """

    speed: Range = (0.5, 1.5)  # m/s, of the chief, drawn per trip
    pause: Range = (20.0, 60.0)  # seconds, of the chief
    radius: float = 50.0  # metres, greatest distance from the chief
    roam_speed: Range = (0.2, 1.0)  # m/s, of a member relative to the chief
    roam_pause: Range = (0.0, 30.0)  # seconds, of a member

    def check(self, nodes: int, area: Area) -> None:
        check_trips(self.speed, self.pause)
        check_number("radius", self.radius, "metres", 0.0, open_end=True)
        check_trips(self.roam_speed, self.roam_pause, "roam_")

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        own, *others = node_streams(random, nodes)
        chief = walk(Rectangle(area), self.speed, self.pause, duration, own).whole()
        members = [
            roaming(chief, area, self.radius, self.roam_speed, self.roam_pause, duration, member)
            for member in others
        ]
        return Motion([window(chief, 0, duration), *members])


class Column(Model, frozen=True, kw_only=True, tag="column"):
    """Column: a single file behind a leader who decides where it goes.

    Scenario 4 of the acyclic overlay (6.2.1): reference points 30 m apart along a column, each user within
    5 m of its own, one user driving the column. Node 0 is that leader and moves by random waypoint. The
    reference point of node k follows in the leader's trail, k times the spacing behind, measured along the
    trail: it turns where the leader turned, as a file of children does, and stops when the leader stops. A
    column longer than the area is wide (ten users, 270 m, on 120 m) thus stays inside; a straight one, as in
    Camp's survey, would not. Speeds and rests are ours.

    The start is stationary. The leader's is drawn as in random waypoint. Of the trail behind it only the
    shape matters, and a sequence of independent uniform waypoints has the same distribution backwards, so the
    past is drawn like the future.
    """

    speed: Range = (0.5, 1.5)  # m/s, of the leader, drawn per trip
    pause: Range = (0.0, 0.0)  # seconds, of the leader at each turn
    spacing: float = 30.0  # metres of trail from one reference point to the next
    radius: float = 5.0  # metres, greatest distance from the own reference point
    roam_speed: Range = (0.1, 0.5)  # m/s, of a member relative to its reference point
    roam_pause: Range = (0.0, 10.0)  # seconds, of a member

    def check(self, nodes: int, area: Area) -> None:
        check_trips(self.speed, self.pause)
        check_number("spacing", self.spacing, "metres", 0.0, open_end=True)
        check_number("radius", self.radius, "metres", 0.0, open_end=True)
        check_trips(self.roam_speed, self.roam_pause, "roam_")

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        leader, *references = self.references(nodes, area, duration, random)
        members = [
            roaming(reference, area, self.radius, self.roam_speed, self.roam_pause, duration, own)
            for reference, own in zip(references, node_streams(random, nodes - 1), strict=True)
        ]
        return Motion([window(leader, 0, duration), *members])

    def references(self, nodes: int, area: Area, duration: Micros, random: Random) -> list[Trajectory]:
        """The reference point of each node, uncut at the end; the leader is its own reference point."""
        self.check(nodes, area)
        own, past = stream(random), stream(random)
        destinations = Rectangle(area)
        start = stationary_start(destinations, self.speed, self.pause, own)
        leader = walk_on(start, destinations, self.speed, self.pause, duration, own).whole()
        trail = _past(start, destinations, self.spacing * (nodes - 1), past)
        return [leader, *(follow(leader, trail, self.spacing * k) for k in range(1, nodes))]


def follow(leader: Trajectory, past: list[Point], behind: float) -> Trajectory:
    """The path of a point that stays `behind` metres of trail behind the leader.

    `past` is where the leader was before time 0, latest first, and at least that long.
    """
    moments = list(
        zip(leader.times.tolist(), zip(leader.x.tolist(), leader.y.tolist(), strict=True), strict=True)
    )
    trail = [*reversed(past), *(at for _, at in moments)]
    marks = [0.0]  # metres from the beginning of the trail, at each of its points
    for a, b in pairwise(trail):
        marks.append(marks[-1] + distance(a, b))
    k = 0  # the follower is on the stretch from trail[k] to trail[k + 1]
    knots: dict[Micros, Point] = {}  # of two knots in one microsecond, the later stays
    for step, (time, _) in enumerate(moments):
        mark = marks[len(past) + step] - behind
        if step > 0:  # the corners that the follower passed since the leader's last knot
            before, last = moments[step - 1][0], marks[len(past) + step - 1] - behind
            while marks[k + 1] < mark:
                k += 1
                share = (marks[k] - last) / (mark - last)
                knots[before + round((time - before) * min(max(share, 0.0), 1.0))] = trail[k]
        else:
            while marks[k + 1] < mark:
                k += 1
        length = marks[k + 1] - marks[k]
        share = (mark - marks[k]) / length if length > 0 else 0.0
        knots[time] = along(trail[k], trail[k + 1], min(max(share, 0.0), 1.0))
    return Trajectory.of([(time, *at) for time, at in sorted(knots.items())])


def _past(start: Start, destinations: Rectangle, length: float, random: Random) -> list[Point]:
    """Where the leader came from, latest first, for at least `length` metres and one point."""
    trail = [start.here]
    left = length
    if start.origin is not None:
        trail.append(start.origin)
        left -= distance(start.here, start.origin)
    while left > 0 or len(trail) < 2:
        trail.append(destinations.next(random, trail[-1]))
        left -= distance(trail[-2], trail[-1])
    return trail[1:]


def roaming(
    reference: Trajectory,
    area: Area,
    radius: float,
    speed: Range,
    pause: Range,
    until: Micros,
    random: Random,
) -> Trajectory:
    """A member's path: never farther than `radius` from its reference, and never faster than the reference
    and `speed` together. The reference must be uncut (`PathBuilder.whole`)."""
    offset = walk(Disc(radius), speed, pause, until, random).whole()
    return window(around(reference, offset, area), 0, until)


def around(reference: Trajectory, offset: Trajectory, area: Area) -> Trajectory:
    """Reference plus offset, with a knot wherever one of them has one, reflected into the area.

    Mirroring at a border never makes a distance larger, and leaves the reference where it is: it breaks
    neither the radius nor the speed. (Stopping members at the border instead would line them up there.)
    """
    knots = []
    until = min(int(reference.times[-1]), int(offset.times[-1]))
    times = sorted(time for time in {*reference.times.tolist(), *offset.times.tolist()} if time <= until)
    for time in times:
        at, away = place_at(reference, time), place_at(offset, time)
        knots.append((time, mirrored(at[0] + away[0], area[0]), mirrored(at[1] + away[1], area[1])))
    return Trajectory.of(knots)


def mirrored(value: float, border: float) -> float:
    """`value` reflected into `[0, border]`, as often as it takes."""
    value %= 2 * border
    return max(2 * border - value, 0.0) if value > border else value
