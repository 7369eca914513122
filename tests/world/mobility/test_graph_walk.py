"""Hosts on a generated network: contacts along its links, and with the node where a host stays."""

from random import Random

import numpy as np
import pytest

from roamcast.errors import ScenarioError
from roamcast.units import SECOND, Micros
from roamcast.world.mobility.graph_walk import GraphWalk

AREA = (1000.0, 1000.0)
END: Micros = 600 * SECOND
MODEL = GraphWalk(walkers=2, stay=20.0, behaviour="travelling_salesman")


def test_contacts_and_motion_are_of_the_same_walk() -> None:
    motion = MODEL.motion(22, AREA, END, Random(4))
    plan = MODEL.contacts(22, AREA, END, Random(4))
    assert motion.nodes == plan.nodes == 22
    fixed = [(a, b) for a, b in zip(plan.sender.tolist(), plan.receiver.tolist(), strict=True) if b < 20]
    assert len(fixed) == 1 + 2 * 18
    stays = 0
    for a, b, start, end in zip(plan.sender, plan.receiver, plan.start, plan.end, strict=True):
        if b < 20:
            assert (start, end) == (0, END)
            continue
        stays += 1
        for time in (int(start) + 2, (int(start) + int(end)) // 2, int(end) - 2):
            there, place = motion.trajectories[b].position(time), motion.trajectories[a].position(time)
            assert there is not None and place is not None
            assert there == pytest.approx(place, abs=0.01)
    assert 30 < stays < 90  # two hosts, 600 s, 20 s and 1 s each


def test_a_host_hears_one_node_at_a_time_and_none_on_its_way() -> None:
    plan = MODEL.contacts(22, AREA, END, Random(4))
    of_host = (plan.sender == 20) | (plan.receiver == 20)
    times = range(0, END, SECOND // 4)
    heard = [int(np.sum(of_host & (plan.start <= time) & (time < plan.end))) for time in times]
    assert set(heard) == {0, 1} and sum(heard) / len(heard) > 0.85


def test_paths_cover_the_run_and_stay_in_the_area() -> None:
    for path in MODEL.motion(22, AREA, END, Random(4)).trajectories:
        assert (path.times[0], path.times[-1]) == (0, END) and not path.gap.any()
        assert path.x.min() >= 0 and path.x.max() <= 1000 and path.y.min() >= 0 and path.y.max() <= 1000


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (GraphWalk(walkers=0), "walkers"),
        (GraphWalk(walkers=20), "walkers"),
        (GraphWalk(stay=0.0), "stay"),
        (GraphWalk(travel=0.0), "travel"),
        (GraphWalk(roam=1.5), "roam"),
    ],
)
def test_what_cannot_be_is_told(model: GraphWalk, key: str) -> None:
    with pytest.raises(ScenarioError, match=f"world.mobility.{key}: is .*allowed"):
        model.check(22, AREA)
