import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.event import EventId
from roamcast.lab.run.expected import expected
from roamcast.lab.run.tables import Expected, RunInfo, Tables, tables
from roamcast.lab.why.answer import Explanation, LossReason, counts, to_text
from roamcast.lab.why.inquest import explain, ways
from roamcast.trace import (
    Delivered,
    Dropped,
    DropReason,
    FaultHappened,
    LinkChanged,
    OverlayChanged,
    Published,
    Record,
    Subscribed,
    Trace,
    Transmitted,
)
from roamcast.units import micros

RUN = RunInfo(name="n", strategy="flooding", seed=1, nodes=10, duration=micros(100), warmup=micros(5))
EVENT = EventId(0, 0)


def published(t: float = 10, sequence: int = 0, **others: Any) -> Published:
    fields: dict[str, Any] = {"event_class": "realtime", "lifetime": 0, "size": 10, "topic": "", "type": ""}
    fields |= {"attributes": '{"level": 5}', "destinations": (), "multimode": False}
    return Published(micros(t), 0, sequence, **(fields | others))


def memorized(lifetime: float, t: float = 10) -> Published:
    return published(t, event_class="memorized", lifetime=micros(lifetime))


def wants(node: int, t: float = 0) -> Subscribed:
    return Subscribed(micros(t), node, 0, "level > 3", True)


def ends(node: int, t: float) -> Subscribed:
    return Subscribed(micros(t), node, 0, "", False)


def up(a: int, b: int, t: float = 0) -> LinkChanged:
    return LinkChanged(micros(t), a, b, True, True)


def down(a: int, b: int, t: float) -> LinkChanged:
    return LinkChanged(micros(t), a, b, True, False)


def sent(
    t: float,
    node: int,
    received: tuple[int, ...] = (),
    collided: tuple[int, ...] = (),
    faded: tuple[int, ...] = (),
    to: int | None = None,
    sequence: int = 0,
    airtime: int = 1000,
) -> Transmitted:
    got, hit, lost = (sum(1 << n for n in part) for part in (received, collided, faded))
    return Transmitted(
        micros(t), node, to, "data", "flood", 50, 1, airtime, 0, sequence, True, got, hit, lost
    )


def dropped(t: float, node: int, reason: DropReason, to: int | None = None) -> Dropped:
    return Dropped(micros(t), node, reason, "flood", 0, 0, to)


def delivered(t: float, node: int, sequence: int = 0, matched: bool = True) -> Delivered:
    return Delivered(micros(t), node, 0, sequence, 1, matched)


def crash(t: float, node: int) -> FaultHappened:
    return FaultHappened(micros(t), "crash", node)


def restart(t: float, node: int) -> FaultHappened:
    return FaultHappened(micros(t), "restart", node)


def run_of(*records: Record) -> Tables:
    trace = Trace()
    for record in records:
        trace.add(record)
    return tables(trace, expected(trace))


def only(*records: Record) -> Explanation:
    (explanation,) = explain(run_of(*records), RUN)
    return explanation


def short(explanation: Explanation) -> tuple[LossReason, int, int, float]:
    return explanation.reason, explanation.holder, explanation.missed, explanation.t / 1e6


LINE = (up(0, 1), up(1, 2))  # 0 - 1 - 2


def test_no_chain_of_links_led_there() -> None:
    found = only(published(), wants(2), up(0, 1), sent(10, 0, (1,)))
    assert short(found) == (LossReason.NO_PATH, 0, 2, 10)


def test_the_last_frame_lost_at_the_subscriber_is_the_reason() -> None:
    triangle = (up(0, 1), up(0, 2), up(1, 2))
    found = only(published(), wants(2), *triangle, sent(10, 0, (1,), (2,)), sent(10.01, 1, (0,), (), (2,)))
    assert short(found) == (LossReason.FADING, 1, 2, 10.01)
    assert "frames lost at node 2: 1 collided, 1 faded" in found.detail
    found = only(published(), wants(2), *triangle, sent(10, 0, (1,), (), (2,)), sent(10.01, 1, (0,), (2,)))
    assert short(found) == (LossReason.COLLISION, 1, 2, 10.01)


def test_a_frame_lost_at_a_relay_is_the_reason_for_those_behind_it() -> None:
    found = only(published(), wants(2), *LINE, sent(10, 0, (), (1,)))
    assert short(found) == (LossReason.COLLISION, 0, 1, 10)


def test_a_link_that_broke_before_the_frame() -> None:
    found = only(published(), wants(1), up(0, 1), down(0, 1, 10.005), sent(10.01, 0))
    assert short(found) == (LossReason.LINK_BROKE, 0, 1, 10.005)


def test_a_link_that_broke_during_the_frame_or_while_it_arrived() -> None:
    during = only(published(), wants(1), up(0, 1), down(0, 1, 10.0105), sent(10.01, 0, faded=(1,)))
    assert short(during) == (LossReason.LINK_BROKE, 0, 1, 10.0105)
    delayed = only(published(), wants(1), up(0, 1), down(0, 1, 10.015), sent(10.01, 0))
    assert short(delayed) == (LossReason.LINK_BROKE, 0, 1, 10.015)


@pytest.mark.parametrize(
    ("drop", "reason"),
    [
        (DropReason.QUEUE_FULL, LossReason.QUEUE_FULL),
        (DropReason.EXPIRED, LossReason.EXPIRED),
        (DropReason.STORE_FULL, LossReason.STORE_FULL),
        (DropReason.STALE, LossReason.STALE_ROUTE),
        (DropReason.CRASHED, LossReason.RELAY_CRASHED),
    ],
)
def test_what_a_relay_dropped_is_the_reason_behind_it(drop: DropReason, reason: LossReason) -> None:
    found = only(published(), wants(2), *LINE, sent(10, 0, (1,)), dropped(10.02, 1, drop))
    assert short(found) == (reason, 1, 2, 10.02)


def test_unicast_that_was_never_acknowledged_or_found_nobody() -> None:
    attempts = [sent(10 + n / 100, 0, (), (), (1,), to=1) for n in range(3)]
    found = only(published(), wants(1), up(0, 1), *attempts, dropped(10.05, 0, DropReason.RETRIES, to=1))
    assert short(found) == (LossReason.RETRIES, 0, 1, 10.05)
    refused = dropped(10, 0, DropReason.NOT_IN_RANGE, to=1)
    found = only(published(), wants(1), up(0, 1), refused)
    assert short(found) == (LossReason.LINK_BROKE, 0, 1, 10)


def test_a_subscriber_that_is_down_or_falls_before_the_frame() -> None:
    found = only(published(), wants(1), up(0, 1), crash(3, 1), restart(20, 1), sent(10, 0))
    assert short(found) == (LossReason.SUBSCRIBER_CRASHED, 0, 1, 3)
    found = only(published(), wants(1), up(0, 1), crash(10.001, 1), sent(10.01, 0))
    assert short(found) == (LossReason.SUBSCRIBER_CRASHED, 0, 1, 10.001)


def test_a_publisher_or_a_relay_that_falls_before_it_sends() -> None:
    found = only(published(), wants(2), *LINE, crash(10.001, 0))
    assert short(found) == (LossReason.PUBLISHER_CRASHED, 0, 1, 10.001)
    found = only(published(), wants(2), *LINE, sent(10, 0, (1,)), crash(10.01, 1))
    assert short(found) == (LossReason.RELAY_CRASHED, 1, 2, 10.01)
    found = only(published(), wants(2), *LINE, crash(10.001, 1), sent(10.01, 0))
    assert short(found) == (LossReason.RELAY_CRASHED, 0, 1, 10.001)


def test_a_frame_that_a_crash_cut_short_is_no_collision() -> None:
    found = only(published(), wants(1), up(0, 1), crash(10.0005, 0), sent(10, 0, (), (1,)))
    assert short(found) == (LossReason.PUBLISHER_CRASHED, 0, 1, 10.0005)


def test_a_crash_long_after_the_copy_came_is_no_reason() -> None:
    found = only(published(), wants(2), *LINE, sent(10, 0, (1,)), crash(50, 1))
    assert short(found) == (LossReason.NOT_SENT, 1, 2, 10.001)


def test_a_trace_in_which_nodes_hold_events_longer_is_given_more_patience() -> None:
    slow = (published(20, 1), sent(23, 0, (1,), sequence=1), wants(9))  # three seconds from copy to frame
    found = explain(
        run_of(published(), wants(2), *LINE, sent(10, 0, (1,)), crash(12, 1), *slow), RUN, EVENT, 2
    )
    assert [e.reason for e in found] == [LossReason.NOT_SENT]  # the slow event is not among those explained
    found = explain(run_of(published(), wants(2), *LINE, sent(10, 0, (1,)), crash(12, 1), *slow), RUN, node=2)
    assert [e.reason for e in found if e.event == EVENT] == [LossReason.RELAY_CRASHED]


def test_a_strategy_that_did_not_forward() -> None:
    found = only(published(), wants(2), *LINE, sent(10, 0, (1,)))
    assert short(found) == (LossReason.NOT_SENT, 1, 2, 10.001)
    star = (up(0, 1), up(0, 2))
    found = only(published(), wants(2), *star, sent(10, 0, (1,), to=1))
    assert short(found) == (LossReason.NOT_SENT, 0, 2, 10)
    assert found.detail == "node 0 sent it to other nodes only: 1"


def test_the_run_ended_before_it_could_be_sent_or_arrive() -> None:
    found = only(published(99.999), wants(1), up(0, 1))
    assert short(found) == (LossReason.RUN_ENDED, 0, 1, 100)
    found = only(published(99.999), wants(1), up(0, 1), sent(99.9995, 0, (1,)))
    assert short(found) == (LossReason.RUN_ENDED, 0, 1, 100)


def test_a_copy_that_waited_for_an_earlier_one_of_its_producer() -> None:
    run = msgspec.structs.replace(RUN, strategy="opportunistic")
    rows = (published(9, 0), published(10, 1), wants(1), up(0, 1), sent(10, 0, (1,), sequence=1))
    found = {one.event: one for one in explain(run_of(*rows), run)}[EventId(0, 1)]
    assert found.reason is LossReason.IN_ORDER
    assert found.detail == "node 1 had it, and waited for event 0 of node 0"


def test_a_copy_that_arrived_and_was_not_handed_over_is_called_a_defect() -> None:
    arrived = (published(), wants(1), up(0, 1), sent(10, 0, (1,)))
    assert short(only(*arrived)) == (LossReason.FILTERED, 0, 1, 10.001)
    # What the subscriber dropped as a relay does not excuse it.
    assert only(*arrived, dropped(10.001, 1, DropReason.QUEUE_FULL)).reason is LossReason.FILTERED


def test_a_frame_for_other_nodes_that_was_overheard_is_no_defect() -> None:
    """In an overlay a broadcast is for the neighbours in it; 1 has a link with 2, and later one with 0."""
    arrived = (published(), wants(1), up(0, 1), sent(10, 0, (1,)))
    links = [OverlayChanged(micros(3), 1, "link_up", 2), OverlayChanged(micros(20), 1, "link_up", 0)]
    found = only(*arrived, *links)
    assert short(found) == (LossReason.OVERHEARD, 0, 1, 10.001)
    assert found.detail == "node 1 heard it in frames for other nodes, and none for it arrived"
    # A frame of a neighbour in the overlay is for it, and so is a unicast.
    linked = OverlayChanged(micros(9), 1, "link_up", 0)
    assert only(*arrived, links[0], linked).reason is LossReason.FILTERED
    addressed = (published(), wants(1), up(0, 1), sent(10, 0, (1,), to=1))
    assert only(*addressed, *links).reason is LossReason.FILTERED


def test_a_copy_that_could_not_be_decoded_or_came_too_late() -> None:
    arrived = (published(), wants(1), up(0, 1), sent(10, 0, (1,)))
    garbled = Dropped(micros(10.001), 1, DropReason.WIRE, "flood", detail="kind at octet 0 is 9")
    found = only(*arrived, garbled)
    assert found.reason is LossReason.WIRE and "octet 0" in found.detail
    assert only(*arrived, dropped(10.001, 1, DropReason.EXPIRED)).reason is LossReason.EXPIRED
    assert only(*arrived, dropped(10.001, 1, DropReason.STALE)).reason is LossReason.STALE_ROUTE


def test_a_frame_that_the_seal_refused_was_not_held() -> None:
    refused = Dropped(micros(10.2), 1, DropReason.SEAL, "sealed", to=0, detail="unproven")
    found = only(published(), wants(1), up(0, 1), sent(10, 0, (1,)), refused)
    assert short(found) == (LossReason.SEAL, 0, 1, 10.001)
    assert found.detail == "frames lost at node 1: 0 collided, 0 faded, 1 refused by the seal"
    # A relay that refused it is where it ended.
    found = only(published(), wants(2), *LINE, sent(10, 0, (1,)), refused)
    assert short(found) == (LossReason.SEAL, 0, 1, 10.001)
    # A relay that sent it on had it, whatever else it refused.
    found = only(published(), wants(2), *LINE, sent(10, 0, (1,)), refused, sent(10.3, 1, faded=(2,)))
    assert short(found) == (LossReason.FADING, 1, 2, 10.3)


@pytest.mark.parametrize(("t", "sender"), [(9.9, 0), (11.0, 0), (10.2, 2)])
def test_what_the_seal_refused_at_another_time_or_of_another_node_is_no_reason(t: float, sender: int) -> None:
    refused = Dropped(micros(t), 1, DropReason.SEAL, "sealed", to=sender, detail="unproven")
    found = only(published(), wants(1), up(0, 1), sent(10, 0, (1,)), refused)
    assert found.reason is LossReason.FILTERED


def test_a_late_subscriber_to_a_retained_event_that_was_superseded() -> None:
    base = (memorized(50), wants(1, t=30), up(0, 1), sent(10, 0, (1,)))
    assert only(*base, dropped(25, 1, DropReason.SUPERSEDED)).reason is LossReason.SUPERSEDED


def test_a_subscriber_that_has_unsubscribed_meanwhile() -> None:
    found = only(published(), wants(1), ends(1, 10.0005), up(0, 1), sent(10, 0, (1,)))
    assert short(found) == (LossReason.UNSUBSCRIBED, 0, 1, 10.0005)


def test_a_misdelivery_after_unsubscribing_is_no_delivery() -> None:
    late = delivered(10.001, 1, matched=False)
    found = only(published(), wants(1), ends(1, 10.0005), up(0, 1), sent(10, 0, (1,)), late)
    assert found.reason is LossReason.UNSUBSCRIBED


def test_a_late_subscriber_that_nobody_served() -> None:
    own = only(memorized(50), wants(1, t=30), up(0, 1), sent(10, 0, (1,)))
    assert short(own) == (LossReason.LATE_SUBSCRIBER, 0, 1, 30)
    other = only(memorized(50), wants(1, t=30), up(0, 1, t=20), sent(10, 0))
    assert short(other) == (LossReason.LATE_SUBSCRIBER, 0, 1, 30)


def test_a_late_subscriber_that_lost_its_copy() -> None:
    base = (memorized(50), wants(1, t=30), up(0, 1), sent(10, 0, (1,)))
    assert short(only(*base, crash(20, 1), restart(21, 1))) == (LossReason.SUBSCRIBER_CRASHED, 0, 1, 20)
    assert short(only(*base, dropped(25, 1, DropReason.STORE_FULL))) == (LossReason.STORE_FULL, 0, 1, 25)


def test_a_memorized_event_is_followed_through_its_lifetime() -> None:
    # 0 meets 1 from 20 to 30 s, 1 meets 2 from 40 s on: carrying the event would have served node 2.
    meetings = (up(0, 1, t=20), down(0, 1, t=30), up(1, 2, t=40))
    found = only(memorized(60), wants(2), *meetings, sent(10, 0))
    assert short(found) == (LossReason.NOT_SENT, 0, 1, 20)
    assert "before the link came up" in found.detail
    assert only(memorized(29), wants(2), *meetings, sent(10, 0)).reason is LossReason.NO_PATH
    assert only(memorized(60), wants(2), *meetings, crash(39, 1), sent(10, 0)).reason is LossReason.NO_PATH
    returned = only(memorized(60), wants(2), *meetings, crash(39, 1), restart(50, 1), sent(10, 0))
    assert short(returned) == (LossReason.NOT_SENT, 0, 1, 20)


def test_a_memorized_event_for_a_node_that_is_down_throughout_or_comes_back() -> None:
    base = (memorized(50), wants(1), up(0, 1), crash(3, 1), sent(10, 0))
    assert short(only(*base)) == (LossReason.SUBSCRIBER_CRASHED, 0, 1, 3)
    assert short(only(*base, restart(61, 1))) == (LossReason.SUBSCRIBER_CRASHED, 0, 1, 3)
    assert short(only(*base, restart(40, 1))) == (LossReason.NOT_SENT, 0, 1, 40)


def test_one_way_links_are_followed_one_way() -> None:
    one_way = LinkChanged(0, 1, 0, False, True)  # 0 hears 1, not the reverse
    assert only(published(), wants(1), one_way, sent(10, 0)).reason is LossReason.NO_PATH


def test_what_the_trace_cannot_explain_is_called_unknown() -> None:
    assert only(published(), wants(1), up(0, 1), sent(10, 0)).reason is LossReason.UNKNOWN


def test_served_pairs_and_the_warm_up_need_no_explanation_unless_asked_for() -> None:
    run = run_of(
        published(1, 0), published(10, 1), wants(1), up(0, 1), delivered(10.1, 1, 1), sent(1, 0, (), (1,))
    )
    assert explain(run, RUN) == []
    assert [e.reason for e in explain(run, RUN, EventId(0, 0))] == [LossReason.COLLISION]


def test_events_and_nodes_can_be_picked() -> None:
    run = run_of(published(10, 0), published(20, 1), wants(1), wants(2))
    assert [(e.event.sequence, e.node) for e in explain(run, RUN)] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert [(e.event.sequence, e.node) for e in explain(run, RUN, EventId(0, 1))] == [(1, 1), (1, 2)]
    assert [(e.event.sequence, e.node) for e in explain(run, RUN, node=2)] == [(0, 2), (1, 2)]


def test_the_ways_are_those_of_the_first_copies() -> None:
    square = (up(0, 1), up(0, 2), up(1, 3), up(2, 3))
    run = run_of(
        *(published(), wants(1), wants(3), *square),
        *(sent(10, 0, (1, 2)), sent(10.02, 1, (0, 3)), sent(10.01, 2, (0, 3)), sent(10.03, 3, (1, 2))),
        *(delivered(10.001, 1), delivered(10.011, 3)),
    )
    assert [(way.node, way.path) for way in ways(run, EVENT)] == [(1, (0, 1)), (3, (0, 2, 3))]


def test_text_counts_the_reasons_and_names_place_and_time() -> None:
    run = run_of(published(), wants(1), wants(2), wants(3), up(0, 1), sent(10, 0, (), (1,)))
    found = explain(run, RUN)
    assert counts(found) == {LossReason.NO_PATH: 2, LossReason.COLLISION: 1}
    lines = to_text(found, limit=1).splitlines()
    assert lines == [
        "3 expected deliveries did not happen: for 2 no journey existed, for 1 one did, and broke",
        "       2  no_path",
        "          event 0:0 to node 2 at hop 0 → 2, 10.000000 s: "
        "no journey led there within the 10 s in which it counted",
        "          … and 1 more; --all lists them",
        "       1  collision",
        "          event 0:0 to node 1 at hop 0 → 1, 10.000000 s: frames lost at node 1: 1 collided, 0 faded",
    ]
    assert to_text(found).splitlines()[3].startswith("          event 0:0 to node 3 at hop 0 → 3")


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_missing_pair_of_a_random_flood_is_explained_by_what_happened(seed: int) -> None:
    """A flood played here by hand, over links that change, with every kind of loss."""
    source = random.Random(seed)
    size = 9
    records: list[Record] = [wants(node) for node in range(1, size)]
    pairs = [(a, b) for a in range(size) for b in range(a) if source.random() < 0.4]
    ends_at = {
        pair: source.choice([micros(200)] * 3 + [micros(10) + source.randrange(60_000)]) for pair in pairs
    }
    records += [LinkChanged(0, a, b, True, True) for a, b in pairs]
    records += [LinkChanged(t, a, b, True, False) for (a, b), t in ends_at.items() if t < micros(100)]
    crashes = {n: micros(10) + source.randrange(40_000) for n in range(size) if source.random() < 0.15}
    records += [FaultHappened(t, "crash", node) for node, t in crashes.items()]
    records.append(published())
    copies = {0: micros(10)}
    waiting = [(micros(10), 0)]
    while waiting:
        waiting.sort()
        t, node = waiting.pop(0)
        if crashes.get(node, t + 1) <= t:
            continue
        if node and source.random() < 0.1:
            records.append(Dropped(t, node, DropReason.QUEUE_FULL, "flood", 0, 0))
            continue
        in_range = [
            peer
            for pair, end in ends_at.items()
            if node in pair and end > t and crashes.get(peer := sum(pair) - node, t + 1) > t
        ]
        outcomes: dict[str, list[int]] = {"received": [], "collided": [], "faded": []}
        for peer in sorted(in_range):
            outcomes[source.choices(list(outcomes), [6, 2, 1])[0]].append(peer)
        got, hit, lost = (sum(1 << peer for peer in nodes) for nodes in outcomes.values())
        records.append(Transmitted(t, node, None, "data", "flood", 50, 1, 0, 0, 0, True, got, hit, lost))
        for peer in outcomes["received"]:
            if peer not in copies:
                copies[peer] = t
                records.append(Delivered(t, peer, 0, 0, 1, True))
                waiting.append((t + source.randrange(1, 20_000), peer))
    run = run_of(*records)
    missing = {row["node"] for row in run[Expected.TABLE].to_pylist()} - set(copies)
    found = explain(run, RUN)
    assert [e.node for e in found] == sorted(missing)
    for explanation in found:
        assert explanation.reason not in (LossReason.UNKNOWN, LossReason.FILTERED, LossReason.NOT_SENT), (
            explanation
        )
        assert explanation.holder in copies and explanation.missed not in copies, explanation
        assert explanation.t <= micros(10.1), explanation
        if explanation.reason in (LossReason.COLLISION, LossReason.FADING):
            name = "collided" if explanation.reason is LossReason.COLLISION else "faded"
            frames = [f for f in run["transmissions"].to_pylist() if f["t"] == explanation.t]
            assert any(f["node"] == explanation.holder and explanation.missed in f[name] for f in frames)
