"""Nomadic community: everyone roams around one chief, who moves by random waypoint.

Scenario 3 of the acyclic overlay (6.2.1): at most 50 m from the chief, who is chosen before the run and stays
chief (a guide and the visitors of a museum). Node 0 is the chief and moves by random waypoint. A member walks
between uniform points of the disc around the chief, and the disc moves with the chief. The paper does not say
how chief and members walk, so the speeds and rests are ours.

Chief and offsets both start stationary and are independent of each other, so the group does.
"""

from random import Random

from roamcast.units import Micros
from roamcast.world.mobility.model import (
    Area,
    Model,
    Range,
    check_number,
    check_seconds,
    check_speed,
    node_streams,
)
from roamcast.world.mobility.movement.groups import roaming
from roamcast.world.mobility.movement.path import window
from roamcast.world.mobility.movement.waypoints import Rectangle, walk
from roamcast.world.trajectory import Motion


class Nomadic(Model, frozen=True, kw_only=True, tag="nomadic"):
    speed: Range = (0.5, 1.5)  # m/s, of the chief, drawn per trip
    pause: Range = (20.0, 60.0)  # seconds, of the chief
    radius: float = 50.0  # metres, greatest distance from the chief
    roam_speed: Range = (0.2, 1.0)  # m/s, of a member relative to the chief
    roam_pause: Range = (0.0, 30.0)  # seconds, of a member

    def check(self, nodes: int, area: Area) -> None:
        check_speed("speed", self.speed)
        check_seconds("pause", self.pause)
        check_number("radius", self.radius, "metres", 0.0, open_end=True)
        check_speed("roam_speed", self.roam_speed)
        check_seconds("roam_pause", self.roam_pause)

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        self.check(nodes, area)
        own, *others = node_streams(random, nodes)
        chief = walk(Rectangle(area), self.speed, self.pause, duration, own).whole()
        members = [
            roaming(chief, area, self.radius, self.roam_speed, self.roam_pause, duration, member)
            for member in others
        ]
        return Motion([window(chief, 0, duration), *members])
