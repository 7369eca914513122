import random
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.lab.run import metrics
from roamcast.lab.run.metrics import COLUMNS, METRICS, Figure, measure, query
from roamcast.lab.run.tables import (
    AttainablePair,
    Derived,
    EventLimit,
    Expected,
    ReachedNodes,
    RunInfo,
    Tables,
    tables,
    with_run,
)
from roamcast.lab.spark.session import session
from roamcast.trace import (
    Delivered,
    FaultHappened,
    HandedOff,
    LinkChanged,
    LoadSampled,
    OnAir,
    OverlayChanged,
    PathsSampled,
    Published,
    Record,
    Trace,
    Transmitted,
)
from roamcast.units import micros

# The names of the design, in its order; ours are `underlay_bytes`, `update_bytes`, what begins with `air_` or
# `noise`, `forwarders_mean`, `channels_mean`,
# `degree_mean`, `link_changes_per_s` and `limit_events`.
NAMES = [
    "published",
    "expected",
    "delivered",
    "duplicates",
    "misdelivered",
    "delivery_ratio",
    "reachable_ratio",
    "delivery_ratio_reachable",
    "latency_p50",
    "latency_p95",
    "hops_mean",
    "control_messages",
    "control_sent",
    "control_bytes",
    "data_messages",
    "data_bytes",
    "underlay_bytes",
    "update_bytes",
    "air_bytes",
    "air_bytes_ratio",
    "control_overhead",
    "control_bytes_ratio",
    "own_control_ratio",
    "own_handled_ratio",
    "link_breaks_per_s",
    "reconnect_ms_mean",
    "reconnect_ms_min",
    "reconnect_ms_max",
    "cycles",
    "excess_partitions",
    "brokers_mean",
    "mprs_mean",
    "forwarders_mean",
    "channels_mean",
    "noise",
    "noise_relayed",
    "noise_ratio",
    "path_hops_mean",
    "path_hops_network",
    "degree_mean",
    "link_changes_per_s",
    "handoffs",
    "handoff_ms_mean",
    "lost_in_handoff",
    "reordered",
    "broker_load_max",
    "broker_load_mean",
    "limit_delivery",
    "delivery_of_limit",
    "latency_excess_p50",
    "latency_excess_p95",
    "limit_events",
    "limit_transmissions",
    "transmissions_of_limit",
    "airtime_of_limit",
    "sim_events",
    "wall_s",
]


def run_info(**others: Any) -> RunInfo:
    fields: dict[str, Any] = {"name": "n", "strategy": "s", "seed": 1, "nodes": 10}
    fields |= {"duration": micros(110), "warmup": micros(10)}
    return RunInfo(**(fields | others))


def published(t: float, sequence: int, size: int) -> Published:
    return Published(micros(t), 0, sequence, "realtime", 0, size, "", "", "{}", (), False)


def delivered(t: float, node: int, sequence: int, hops: int, matched: bool = True) -> Delivered:
    return Delivered(micros(t), node, 0, sequence, hops, matched)


def sent(
    t: float,
    kind: str,
    size: int,
    own: bool = True,
    attempt: int = 1,
    layer: str = "strategy",
    message: str = "m",
    sequence: int | None = None,  # of the event that it carries
) -> Transmitted:
    publisher = None if sequence is None else 0
    how = (attempt, 10, publisher, sequence, own)
    return Transmitted(micros(t), 0, None, kind, message, size, *how, 2, 0, 0, layer)


def aired(t: float, protocol: str, octets: int) -> OnAir:
    return OnAir(micros(t), 0, None, protocol, octets, 1, 10, 2, 0, 0)


def overlay(t: float, node: int, change: str, **others: Any) -> OverlayChanged:
    return OverlayChanged(micros(t), node, change, **others)


def tables_of(*records: Record) -> Tables:
    trace = Trace()
    for record in records:
        if not isinstance(record, Derived):
            trace.add(record)
    return tables(trace, [record for record in records if isinstance(record, Derived)])


def small_run() -> Tables:
    """Five expected pairs after the warm-up of 10 s, three of them served; an overlay with roles."""
    return tables_of(
        published(5, 0, 100),  # in the warm-up: counts nowhere
        Expected(0, 0, 1, micros(5), True, 1),
        delivered(6, 1, 0, 9),
        delivered(7, 1, 0, 9),
        published(10, 1, 100),
        Expected(0, 1, 1, micros(10), True, 1),
        Expected(0, 1, 2, micros(10), True, 2),
        Expected(0, 1, 3, micros(10), False, None),
        delivered(10.1, 1, 1, 1),
        delivered(10.3, 1, 1, 3),  # a duplicate
        delivered(10.4, 2, 1, 5),  # of two copies at one instant the shorter way counts
        delivered(10.4, 2, 1, 2),
        delivered(10.2, 3, 1, 4, matched=False),  # no delivery: it did not match
        published(20, 2, 200),
        Expected(0, 2, 1, micros(20), True, 1),
        Expected(0, 2, 4, micros(20), True, 1),
        delivered(20.2, 1, 2, 4),
        delivered(20.9, 9, 2, 7),  # matched, but not expected when it was published
        sent(9.9, "control", 1000, layer="underlay"),
        sent(10, "control", 10),
        sent(11, "control", 20, own=False, layer="underlay"),
        sent(12, "control", 30, attempt=2),  # the first attempt fell into the warm-up
        sent(13, "data", 300, sequence=1),
        sent(13.1, "data", 300, attempt=2, sequence=1),
        aired(9.9, "udp", 1000),
        aired(10, "arp", 42),
        aired(13, "udp", 342),
        overlay(1, 0, "link_up", peer=1),
        overlay(5, 0, "link_down", peer=1),
        overlay(15, 0, "link_down", peer=1),
        overlay(50, 0, "link_down", peer=1),
        overlay(6, 0, "repaired", value=9.0),
        overlay(16, 0, "repaired", value=100.0),
        overlay(51, 0, "repaired", value=300.5),
        overlay(0, 1, "role_on", role="broker"),  # 100 s of the 100 measured
        overlay(70, 1, "role_on", role="broker"),  # has it already
        overlay(60, 2, "role_on", role="broker"),  # 25 s
        overlay(85, 2, "role_off", role="broker"),
        overlay(20, 3, "role_on", role="broker"),  # 10 s until its crash, 60 s after its return
        FaultHappened(micros(30), "crash", 3),
        FaultHappened(micros(40), "restart", 3),
        overlay(50, 3, "role_on", role="broker"),
        overlay(2, 4, "role_on", role="broker"),  # nothing: over before the warm-up ended
        overlay(7, 4, "role_off", role="broker"),
        overlay(109, 1, "role_on", role="mpr"),  # 1 s
        overlay(60, 5, "role_on", role="forwarding"),  # 50 s
        overlay(5, 6, "grouped", role="channel", value=2.0),  # 2 for 20 s after the warm-up, 3 for 10 s
        overlay(30, 6, "grouped", role="channel", value=3.0),
        overlay(40, 6, "grouped", role="channel", value=0.0),
        overlay(20, 3, "grouped", role="channel", value=1.0),  # for 10 s, until its crash
        AttainablePair(0, 1, 1, micros(10.05)),
        AttainablePair(0, 1, 2, micros(10.1)),
        AttainablePair(0, 1, 3, micros(10.2)),
        AttainablePair(0, 2, 1, micros(20)),
        EventLimit(0, 1, micros(10.3), 4, 1, 2),  # node 2 is served too late
        EventLimit(0, 2, micros(30), 4, None, None),  # of which the fewest broadcasts were not computed
        LinkChanged(micros(2), 0, 1, True, True),  # both directions, 50 s after the warm-up
        LinkChanged(micros(60), 0, 1, True, False),
        LinkChanged(micros(50), 2, 1, False, True),  # one direction, 20 s
        LinkChanged(micros(70), 2, 1, False, False),
        ReachedNodes(0, 0, 5, 5, 5),  # in the warm-up
        ReachedNodes(0, 1, 4, 1, 0),
        ReachedNodes(0, 2, 6, 4, 3),
        PathsSampled(micros(5), "network", 100, 1000),
        PathsSampled(micros(10), "network", 4, 6),
        PathsSampled(micros(60), "network", 6, 14),
        PathsSampled(micros(60), "overlay", 2, 5),
    )


SMALL_RUN: dict[str, Figure] = {
    "published": 2,
    "expected": 5,
    "delivered": 3,
    "duplicates": 2,
    "misdelivered": 1,
    "delivery_ratio": 3 / 5,
    "reachable_ratio": 4 / 5,
    "delivery_ratio_reachable": 3 / 4,
    "latency_p50": 0.2,
    "latency_p95": 0.38,  # 0.1, 0.2, 0.4: nine tenths of the way from the second to the third
    "hops_mean": (1 + 2 + 4) / 3,
    "control_messages": 3,
    "control_sent": 2,
    "control_bytes": 60,
    "data_messages": 2,
    "data_bytes": 600,
    "underlay_bytes": 20,
    "update_bytes": 0,
    "air_bytes": 384,
    "air_bytes_ratio": 384 / (100 + 100 + 200),
    "control_overhead": 3 / 3,
    "control_bytes_ratio": 60 / (5 * 100 + 2 * 200),
    "own_control_ratio": None,  # nothing is for others
    "own_handled_ratio": None,
    "link_breaks_per_s": 2 / 100,
    "reconnect_ms_mean": 200.25,
    "reconnect_ms_min": 100.0,
    "reconnect_ms_max": 300.5,
    "cycles": None,
    "excess_partitions": None,
    "brokers_mean": (100 + 25 + 10 + 60) / 100,
    "mprs_mean": 1 / 100,
    "forwarders_mean": 50 / 100,
    "channels_mean": (2 * 20 + 3 * 10 + 1 * 10) / (20 + 10 + 10),
    "noise": 5,
    "noise_relayed": 3,
    "noise_ratio": 5 / 10,
    "path_hops_mean": 5 / 2,
    "path_hops_network": 20 / 10,
    "degree_mean": (2 * 50 + 20) / 100 / 10,
    "link_changes_per_s": 3 / 100,
    "handoffs": None,
    "handoff_ms_mean": None,
    "lost_in_handoff": None,
    "reordered": None,
    "broker_load_max": None,
    "broker_load_mean": None,
    "limit_delivery": 4 / 5,
    "delivery_of_limit": 2 / 4,
    "latency_excess_p50": 0.2,
    "latency_excess_p95": 0.29,  # 0.05, 0.2, 0.3
    "limit_events": 1,
    "limit_transmissions": 1,
    "transmissions_of_limit": 2 / 1,
    "airtime_of_limit": (5 * 10) / (2 * 4),  # one event of two needs 4 us
    "sim_events": 1234,
    "wall_s": 0.5,
}
SMALL_RUN_INFO = run_info(sim_events=1234, wall_s=0.5)


def random_run() -> Tables:
    """Enough pairs that percentiles fall between them."""
    source = random.Random(5)
    records: list[Record] = [published(10, 1, 33)]
    for node in range(1, 42):
        records.append(Expected(0, 1, node, micros(10), source.random() < 0.5, None))
        records.append(delivered(10 + source.random(), node, 1, source.randint(1, 9), source.random() < 0.8))
    return tables_of(*records)


def test_the_registry_has_the_names_of_the_design_in_its_order() -> None:
    assert list(METRICS) == NAMES


def test_a_small_run_measures_as_counted_by_hand() -> None:
    measured = measure(small_run(), SMALL_RUN_INFO)
    assert list(measured) == NAMES
    assert measured == SMALL_RUN
    for name in NAMES:
        if isinstance(SMALL_RUN[name], int):
            assert type(measured[name]) is int, name


def test_own_control_is_compared_with_that_for_others_and_what_is_for_all_is_in_neither() -> None:
    """Acyclic overlay, table 6.1: own vs. other, without group hellos."""
    measured = measure(
        tables_of(
            sent(20, "control", 30),
            sent(20, "control", 40, own=False),
            sent(20, "control", 80, own=False, message="rrep"),
            sent(20, "control", 500, message="grph"),
            sent(20, "control", 600, own=False, message="grph"),
            sent(20, "control", 700, layer="underlay"),
            sent(20, "data", 900),
            overlay(15, 0, "link_down", peer=1, role="pruned"),  # nobody lost it
            overlay(15, 0, "link_down", peer=2, role="downstream"),
        ),
        SMALL_RUN_INFO,
    )
    assert measured["own_control_ratio"] == 30 / 120
    assert measured["link_breaks_per_s"] == 1 / 100


def test_own_operations_are_compared_with_those_of_others_by_what_came_in_after_the_warm_up() -> None:
    """Acyclic overlay, table 6.2: bytes received for own control traffic."""
    measured = measure(
        tables_of(
            overlay(5, 0, "handled", role="own", value=1_000.0),
            overlay(20, 0, "handled", role="own", value=30.0),
            overlay(20, 1, "handled", role="others", value=120.0),
            overlay(20, 2, "handled", role="others", value=80.0),
        ),
        SMALL_RUN_INFO,
    )
    assert measured["own_handled_ratio"] == 30 / 200


def test_an_empty_run_counts_zero_and_has_no_ratios() -> None:
    measured = measure(tables_of(), run_info())
    counts = {name for name, figure in measured.items() if figure == 0}
    assert counts == {
        *("published", "expected", "delivered", "duplicates", "misdelivered"),
        *("control_messages", "control_sent", "control_bytes", "data_messages", "data_bytes"),
        *("underlay_bytes", "update_bytes", "noise", "noise_relayed"),
    }
    assert all(figure is None for name, figure in measured.items() if name not in counts)


def test_an_event_that_reached_nobody_counts_zero_and_not_nothing() -> None:
    measured = measure(
        tables_of(published(10, 1, 5), Expected(0, 1, 1, micros(10), False, None), sent(11, "control", 7)),
        run_info(),
    )
    assert (measured["expected"], measured["delivered"], measured["delivery_ratio"]) == (1, 0, 0.0)
    assert measured["reachable_ratio"] == 0.0
    assert measured["delivery_ratio_reachable"] is None
    assert measured["latency_p50"] is None and measured["hops_mean"] is None
    assert measured["control_overhead"] is None and measured["control_bytes_ratio"] is None


def moved_run() -> Tables:
    """Node 1 is moved from 20 s to 22 s. Of four events it gets the third before the second, and never the
    last, which was published during the move; node 2 misses that too, but nobody moved it."""
    return tables_of(
        *(published(10.0 + 3.5 * number, number, 5) for number in range(4)),  # 10, 13.5, 17 and 20.5 s
        *(Expected(0, number, node, micros(10), True, 1) for number in range(4) for node in (1, 2)),
        *(delivered(t, 1, number, 1) for t, number in ((11, 0), (18, 2), (19, 1), (19.5, 2))),
        *(delivered(18, 2, number, 1) for number in (2, 0, 1)),  # at one instant: no order to break
        HandedOff(micros(22), 1, 5, 6, micros(20), 3, "moved"),
        HandedOff(micros(30), 2, 5, 6, micros(26), 3, "aborted"),
    )


def test_handoffs_are_counted_timed_and_blamed_for_what_was_lost_while_they_went_on() -> None:
    measured = measure(moved_run(), run_info())
    assert measured["handoffs"] == 1 and measured["handoff_ms_mean"] == 2000.0
    assert measured["lost_in_handoff"] == 1 and measured["reordered"] == 1


def test_loads_are_those_of_whole_spans_after_the_warm_up() -> None:
    """The warm-up ends at 10 s: the first span of each broker began before."""
    samples = [(15, 1, 3.0), (25, 1, 0.5), (35, 1, 0.75), (19, 2, 2.0), (29, 2, 1.0), (39, 2, 0.25)]
    loads = (LoadSampled(micros(t), node, load, 1, 0, micros(10)) for t, node, load in samples)
    measured = measure(tables_of(*loads), run_info())
    assert measured["broker_load_max"] == 1.0
    assert measured["broker_load_mean"] == pytest.approx((0.5 + 0.75 + 1.0 + 0.25) / 4)


def test_an_overlay_without_breaks_has_none_and_a_role_never_taken_has_no_mean() -> None:
    measured = measure(
        tables_of(overlay(20, 0, "link_up", peer=1), FaultHappened(micros(30), "crash", 3)), run_info()
    )
    assert measured["link_breaks_per_s"] == 0.0
    assert measured["reconnect_ms_mean"] is None
    assert measured["brokers_mean"] is None and measured["mprs_mean"] is None


def test_a_role_given_up_and_taken_again_at_one_instant_goes_on() -> None:
    measured = measure(
        tables_of(
            overlay(10, 1, "role_on", role="mpr"),
            overlay(60, 1, "role_on", role="mpr"),
            overlay(60, 1, "role_off", role="mpr"),
        ),
        run_info(),
    )
    assert measured["mprs_mean"] == 1.0


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.sampled_from([0.5, 0.95]))
@settings(max_examples=50, deadline=None)
def test_percentiles_are_linear_between_neighbours(values: list[int], share: float) -> None:
    import numpy as np

    aggregate = metrics._Percentile()
    for value in [*values, None]:
        aggregate.step(value, share)
    assert aggregate.finalize() == pytest.approx(float(np.percentile(values, share * 100)), rel=1e-12)


def test_the_documentation_names_every_metric_with_its_unit_and_meaning() -> None:
    text = (Path(__file__).parents[3] / "docs" / "study" / "metrics.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == NAMES
    for row in rows:
        name, unit, meaning = (cell.strip() for cell in row.split("|")[1:4])
        metric = METRICS[name.strip("`")]
        assert (unit, meaning) == (metric.unit, metric.meaning)


@pytest.mark.spark
def test_spark_measures_many_runs_by_the_same_text_and_to_the_same_digit() -> None:
    spark = session().newSession()  # the tables' names mean something else to other tests
    runs = {
        "full": (small_run(), SMALL_RUN_INFO),
        "empty": (tables_of(), run_info()),
        "moved": (moved_run(), run_info()),
        "unserved": (tables_of(published(10, 1, 5), Expected(0, 1, 1, micros(10), False, None)), run_info()),
        "overlay": (tables_of(overlay(20, 0, "link_up", peer=1)), run_info(warmup=micros(0))),
        "random": (random_run(), run_info()),
        "instant": (small_run(), run_info(warmup=micros(110))),
    }
    for name, columns in COLUMNS.items():
        together = pa.concat_tables(
            [with_run(made[name].select(list(columns)), run) for run, (made, _) in runs.items()]
        )
        # In one chunk: PySpark 4.3 loses whatever follows an empty chunk of an Arrow table.
        spark.createDataFrame(together.combine_chunks()).createOrReplaceTempView(name)
    rows = [(run, i.nodes, i.warmup, i.duration, i.sim_events, i.wall_s) for run, (_, i) in runs.items()]
    schema = "run string, nodes bigint, warmup bigint, duration bigint, sim_events bigint, wall_s double"
    spark.createDataFrame(rows, schema).createOrReplaceTempView("runs")
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"  # where a division by zero raises

    found = {row["run"]: row.asDict() for row in spark.sql(query()).collect()}

    assert sorted(found) == sorted(runs)
    for run, (made, info) in runs.items():
        assert list(found[run]) == ["run", *NAMES]
        del found[run]["run"]
        assert found[run] == measure(made, info), run
        assert all(value is None or isinstance(value, int | float) for value in found[run].values())
