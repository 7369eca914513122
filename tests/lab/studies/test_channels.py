"""The channels' cost model, by hand and as the paper's claims."""

import pytest

from roamcast.lab.studies.channels import ChannelsStudy, cost, follow, relocation_cost
from roamcast.strategy.opportunistic.adaptation.adaptors import ComplexHomeBroker, SimpleHomeBroker
from roamcast.world.graph import Stay

# A line 0 - 1 - 2 - 3 with links of 10.
LINE = [[10 * abs(a - b) for b in range(4)] for a in range(4)]


def test_relocation_messages_times_their_ways() -> None:
    # Host at 3 tells its broker at 1: 20. Between brokers 1 and 3, thrice 20. Supplier at 0: 10 + 10 + 30.
    assert relocation_cost(LINE, 3, 1, 3, [0]) == 20 + 60 + 50
    assert relocation_cost(LINE, 3, 1, 3, [0, 2]) == 20 + 60 + 50 + (10 + 10 + 10)


def test_a_host_that_walks_on_along_the_line_needs_no_relocation() -> None:
    stays = [Stay(1, 1.0), Stay(3, 1.0)]  # away from the source at 0: through broker 1 is the shortest way
    normal = follow(LINE, [0], stays, 10, None)
    assert (normal.messages, normal.delivery, normal.relocation) == (20, 10 * 10 + 10 * 30, 0)
    assert follow(LINE, [0], stays, 10, ComplexHomeBroker) == normal
    simple = follow(LINE, [0], stays, 10, SimpleHomeBroker)
    assert (simple.delivery, simple.relocation, simple.relocations) == (400, 130, 1)


def test_a_host_that_comes_nearer_is_served_by_the_shorter_way() -> None:
    stays = [Stay(3, 1.0), Stay(1, 1.0)]
    assert follow(LINE, [0], stays, 10, None).delivery == 10 * 30 + 10 * (30 + 20)
    for adaptor in (SimpleHomeBroker, ComplexHomeBroker):
        found = follow(LINE, [0], stays, 10, adaptor)
        assert (found.delivery, found.relocations) == (10 * 30 + 10 * 10, 1)


def test_messages_come_from_each_source_in_turn() -> None:
    assert follow(LINE, [0, 3], [Stay(1, 0.5)], 10, None).delivery == 3 * 10 + 2 * 20


@pytest.mark.parametrize("sources", [1, 5])
def test_the_complex_channel_costs_least_where_relocating_pays(sources: int) -> None:
    found = {}
    for channel in ("normal", "oc1", "oc2"):
        wanted = ChannelsStudy(channel=channel, behaviour="pop_up", ratio=0.01, sources=sources, moves=100)
        found[channel] = sum(cost(wanted, 1, network).per_message() for network in range(4))
    assert found["oc2"] < found["oc1"] < found["normal"]


def test_beyond_that_relocating_costs_more_than_it_saves() -> None:
    wanted = ChannelsStudy(channel="oc1", behaviour="random", ratio=1.0, moves=100)
    normal = ChannelsStudy(channel="normal", behaviour="random", ratio=1.0, moves=100)
    assert cost(wanted, 1).per_message() > cost(normal, 1).per_message()
