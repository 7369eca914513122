"""The parts by themselves: labels, the choice of a reply, parameters, tables that forget."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.strategy.tree.overlay.messages import Label, RequestKey
from roamcast.strategy.tree.overlay.multicast_table import ENTRIES_MAX, KEPT, AgingDict, Reply, best_reply
from roamcast.strategy.tree.parameters import (
    OverlayParameters,
    ParameterAdaptation,
    TreeOptions,
)
from roamcast.testing import FakeHost
from roamcast.trace import Dropped
from roamcast.underlay.beacons import BeaconOptions
from roamcast.units import SECOND

labels = st.builds(Label, st.integers(0, 3), st.integers(0, 3), st.integers(-3, 3))


@given(labels, labels, labels)
def test_labels_have_a_strict_total_order(a: Label, b: Label, c: Label) -> None:
    assert not a.better_than(a)
    assert a == b or a.better_than(b) != b.better_than(a)
    if a.better_than(b) and b.better_than(c):
        assert a.better_than(c)


def test_freshness_counts_before_distance_and_identifiers_break_ties() -> None:
    assert Label(2, 0, 9).better_than(Label(1, 5, 0))
    assert Label(1, 5, 9).better_than(Label(1, 4, 0))
    assert Label(1, 5, 3).better_than(Label(1, 5, 4))


def reply(responder: int, sequence: int, hops: int) -> Reply:
    return Reply(RequestKey(0, 1), responder, Label(sequence, 9, 0), hops, yields=False)


@pytest.mark.parametrize(
    ("tolerance", "chosen"),
    [(0, 1), (1, 2), (2, 3)],  # a staler reply wins by fewer hops, within the tolerance
)
def test_group_sequence_tolerance_weighs_freshness_against_distance(tolerance: int, chosen: int) -> None:
    replies = [reply(1, 10, 5), reply(2, 9, 3), reply(3, 8, 1)]
    assert best_reply(replies, tolerance) == replies[chosen - 1]
    assert best_reply([], tolerance) is None


def test_the_presets_are_tables_6_3_and_6_4_and_the_file_of_b_1() -> None:
    walking = OverlayParameters.of(TreeOptions(preset="walking"))
    assert walking == OverlayParameters(1 * SECOND, 5 * SECOND, 2, 2, 2, 2, 2, 2, 10)
    driving = OverlayParameters.of(TreeOptions(preset="driving"))
    assert driving == OverlayParameters(1 * SECOND, 2_500_000, 1, 2, 2, 1, 2, 2, 10)
    sample = OverlayParameters.of(TreeOptions(preset="sample"))
    assert sample == OverlayParameters(1_500_000, 4 * SECOND, 2, 3, 3, 2, 3, 3, 8)


def test_a_given_parameter_beats_the_preset() -> None:
    options = TreeOptions(preset="driving", hello_interval=0.5, request_retries=7)
    assert OverlayParameters.of(options).hello_interval == SECOND // 2
    assert OverlayParameters.of(options).request_retries == 7
    assert options.beacons().allowed_loss == 2


def test_the_preset_of_ours_notices_a_loss_within_a_second_and_the_others_beacon_as_before() -> None:
    prompt = TreeOptions(preset="prompt").beacons()
    assert prompt == BeaconOptions(interval=0.2, allowed_loss=2, prompt=True, lone_interval=1.0)
    assert TreeOptions().beacons() == BeaconOptions(interval=1.0, allowed_loss=2)
    slow = TreeOptions(preset="prompt", beacon_interval=3.0).beacons()
    assert (slow.interval, slow.lone_interval) == (3.0, 3.0)


def test_impossible_values_are_refused() -> None:
    for bad in ({"hello_interval": 0}, {"ttl_increment": 0}, {"preset": "flying"}, {"hello": 1}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, TreeOptions)


def test_adaptation_goes_from_walking_to_driving_and_back_with_the_disconnection_rate() -> None:
    adaptation = ParameterAdaptation(TreeOptions(adaptive=True, request_retries=5))
    walking = OverlayParameters.of(TreeOptions(request_retries=5))
    assert adaptation.parameters(0) == walking
    for each in (0, 50):  # two within two minutes
        adaptation.on_break(each * SECOND)
    restless = adaptation.parameters(52 * SECOND)
    assert restless == OverlayParameters.of(TreeOptions(preset="driving", request_retries=5))
    assert adaptation.parameters(200 * SECOND) == walking


def test_adaptation_is_off_by_default_and_between_the_tables_in_between() -> None:
    fixed, adaptive = ParameterAdaptation(TreeOptions()), ParameterAdaptation(TreeOptions(adaptive=True))
    fixed.on_break(5)
    adaptive.on_break(5)  # one within two minutes: half the way
    assert fixed.parameters(10) == OverlayParameters.of(TreeOptions())
    assert adaptive.parameters(10).hello_interval == 3_750_000
    assert adaptive.parameters(10).reconnection_trigger == 1


def test_tables_forget_by_age_and_by_number() -> None:
    host = FakeHost(0)
    recent: AgingDict[int, str] = AgingDict(host)
    recent.put(1, "old")
    host.advance(KEPT + 1)
    recent.put(2, "new")
    assert recent.find(1) is None and recent.find(2) == "new"
    for each in range(ENTRIES_MAX + 10):
        recent.put(each, "")
    assert len(recent) == ENTRIES_MAX
    assert [each for each in range(20) if recent.find(each) is None] == list(range(10))
    assert [record.detail for record in host.records if isinstance(record, Dropped)] == ["ENTRIES_MAX"] * 10
