"""Every metric of the design, each defined once, as SQL over the tables of a trace.

The text uses only what means the same in SQLite and Spark SQL. A single run is measured with SQLite in
memory (`measure`); the pipeline runs the same `query()` over the tables of many runs in Spark. Every table
has a column `run` there, and `runs` has one row for each run.

How the two engines are kept equal to the last digit:
- integers are summed as integers, and divided once, as doubles (`1e0` is a double in both, `1.0` is not);
- a division by what may be 0 goes through NULLIF, because Spark raises where SQLite answers NULL;
- `percentile` is Spark's exact one, linear between neighbours; SQLite gets ours, by the same formula.

What happened before the warm-up ended is left out: events published and frames sent before it. Each
metric is NULL where it has no meaning: a ratio over nothing, an overlay figure of a strategy without one.
"""

import logging
import math
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import NamedTuple, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.lab.run.tables import RunInfo, plain
from roamcast.registry import BUILT_IN, NothingDeclared, PluginError, RegisteredPart, Registry, origin_of

logger = logging.getLogger("roamcast.lab")

Figure: TypeAlias = float | int | None
"""A metric's value: an integer where it counts, None where it has no meaning."""

RELATIONS: dict[str, str] = {
    "events": """
        SELECT p.run AS run, p.publisher AS publisher, p.sequence AS sequence, p.t AS t, p.size AS size
        FROM publications p JOIN runs r ON r.run = p.run
        WHERE p.t >= r.warmup""",
    # Copy 1 is the first that matched, if any did: the one that counts as the delivery.
    "hand_overs": """
        SELECT d.run AS run, d.publisher AS publisher, d.sequence AS sequence, d.node AS node,
            d.t - e.t AS latency, d.hops AS hops, d.matched AS matched, e.size AS size,
            ROW_NUMBER() OVER (
                PARTITION BY d.run, d.publisher, d.sequence, d.node
                ORDER BY CASE WHEN d.matched THEN 0 ELSE 1 END, d.t, d.hops
            ) AS copy
        FROM deliveries d
        JOIN events e ON e.run = d.run AND e.publisher = d.publisher AND e.sequence = d.sequence""",
    "pairs": """
        SELECT x.run AS run, x.publisher AS publisher, x.sequence AS sequence, x.node AS node, e.t AS t,
            x.reachable AS reachable, h.latency AS latency, h.hops AS hops, h.size AS size
        FROM expected x
        JOIN events e ON e.run = x.run AND e.publisher = x.publisher AND e.sequence = x.sequence
        LEFT JOIN hand_overs h ON h.run = x.run AND h.publisher = x.publisher
            AND h.sequence = x.sequence AND h.node = x.node AND h.copy = 1 AND h.matched""",
    # Only of runs whose limit was computed. `earliest` is NULL where no journey leads there in time.
    "attainments": """
        SELECT p.run AS run, p.t AS t, p.latency AS latency, l.deadline AS deadline, a.t AS earliest
        FROM pairs p
        JOIN limits l ON l.run = p.run AND l.publisher = p.publisher AND l.sequence = p.sequence
        LEFT JOIN attainable a ON a.run = p.run AND a.publisher = p.publisher
            AND a.sequence = p.sequence AND a.node = p.node""",
    # The events whose fewest broadcasts are known, beside what was sent for them.
    "bounded_events": """
        SELECT l.run AS run, l.fewest AS fewest, l.fewest * l.airtime AS least_airtime,
            COALESCE(s.frames, 0) AS frames
        FROM limits l
        LEFT JOIN (
            SELECT run, publisher, sequence, COUNT(*) AS frames
            FROM transmissions WHERE kind = 'data' GROUP BY run, publisher, sequence
        ) s ON s.run = l.run AND s.publisher = l.publisher AND s.sequence = l.sequence
        WHERE l.fewest IS NOT NULL""",
    "frames": """
        SELECT s.run AS run, s.kind AS kind, s.message AS message, s.size AS size, s.own AS own,
            s.layer AS layer, s.attempt AS attempt, s.airtime AS airtime
        FROM transmissions s JOIN runs r ON r.run = s.run
        WHERE s.t >= r.warmup""",
    # What each change of the contact plan adds to or takes from the time in which links stand, both
    # directions counted; crashes apart.
    "plan_changes": """
        SELECT l.run AS run, r.nodes AS nodes, r.duration - r.warmup AS span,
            CASE WHEN l.t >= r.warmup THEN 1 ELSE 0 END AS counted,
            (CASE WHEN l.up THEN 1 ELSE -1 END) * (CASE WHEN l.both THEN 2 ELSE 1 END)
                * (r.duration - CASE WHEN l.t > r.warmup THEN l.t ELSE r.warmup END) AS stands
        FROM links l JOIN runs r ON r.run = l.run
        WHERE l.t < r.duration""",
    "air_frames": """
        SELECT a.run AS run, a.octets AS octets
        FROM air a JOIN runs r ON r.run = a.run
        WHERE a.t >= r.warmup""",
    "overlay_links": """
        SELECT o.run AS run, o.change AS change, o.value AS value, o.t >= r.warmup AS counted,
            r.duration - r.warmup AS span
        FROM overlay o JOIN runs r ON r.run = o.run
        WHERE o.change IN ('link_up', 'link_down', 'repaired') AND o.role NOT IN ('upstream', 'pruned')""",
    "handled": """
        SELECT o.run AS run, o.role AS whose, o.value AS octets
        FROM overlay o JOIN runs r ON r.run = o.run
        WHERE o.change = 'handled' AND o.t >= r.warmup""",
    # A crash ends a node's roles without a record of its own. Of changes at one instant the loss comes
    # first, and a role that is reported twice counts once.
    "role_changes": """
        SELECT run, node, t, role, CASE WHEN change = 'role_on' THEN 1 ELSE 0 END AS held
        FROM overlay WHERE change IN ('role_on', 'role_off')
        UNION ALL
        SELECT f.run, f.node, f.t, o.role, 0
        FROM faults f
        JOIN (SELECT DISTINCT run, node, role FROM overlay WHERE change = 'role_on') o
            ON o.run = f.run AND o.node = f.node
        WHERE f.kind = 'crash'""",
    "role_steps": """
        SELECT c.run AS run, c.role AS role, c.held AS held, r.duration - r.warmup AS span,
            (c.held - LAG(c.held, 1, 0) OVER (PARTITION BY c.run, c.node, c.role ORDER BY c.t, c.held))
                * (r.duration - CASE WHEN c.t > r.warmup THEN c.t ELSE r.warmup END) AS held_for
        FROM role_changes c JOIN runs r ON r.run = c.run""",
    # How many channels a publisher's broker has, until the next change; a crash ends them all.
    "channel_changes": """
        SELECT run, node, t, CAST(value AS BIGINT) AS channels FROM overlay WHERE change = 'grouped'
        UNION ALL
        SELECT f.run, f.node, f.t, 0
        FROM faults f
        JOIN (SELECT DISTINCT run, node FROM overlay WHERE change = 'grouped') o
            ON o.run = f.run AND o.node = f.node
        WHERE f.kind = 'crash'""",
    "channel_steps": """
        SELECT run, channels,
            CASE WHEN ends > begins THEN ends - begins ELSE 0 END AS lasted
        FROM (
            SELECT c.run AS run, c.channels AS channels,
                CASE WHEN c.t > r.warmup THEN c.t ELSE r.warmup END AS begins,
                COALESCE(LEAD(c.t) OVER (PARTITION BY c.run, c.node ORDER BY c.t), r.duration) AS ends
            FROM channel_changes c JOIN runs r ON r.run = c.run
        ) steps""",
    "reaches": """
        SELECT d.run AS run, d.nodes AS nodes, d.unwanted AS unwanted,
            d.relayed AS relayed
        FROM reached d
        JOIN events e ON e.run = d.run AND e.publisher = d.publisher AND e.sequence = d.sequence""",
    "relocations": """
        SELECT o.run AS run, o.outcome AS outcome, o.t - o.started AS lasted
        FROM handoffs o JOIN runs r ON r.run = o.run
        WHERE o.t >= r.warmup""",
    # One row per consumer and event, published while the consumer was being moved, that was never delivered;
    # only in runs that move consumers. `pair` is NULL where there is none.
    "relocation_losses": """
        SELECT m.run AS run, l.pair AS pair
        FROM (SELECT DISTINCT run FROM handoffs) m
        LEFT JOIN (
            SELECT DISTINCT x.run AS run, x.node AS node, x.publisher AS publisher, x.sequence AS sequence,
                1 AS pair
            FROM expected x
            JOIN events e ON e.run = x.run AND e.publisher = x.publisher AND e.sequence = x.sequence
            JOIN handoffs o ON o.run = x.run AND o.node = x.node AND o.started <= e.t AND e.t <= o.t
            LEFT JOIN hand_overs h ON h.run = x.run AND h.publisher = x.publisher
                AND h.sequence = x.sequence AND h.node = x.node AND h.copy = 1 AND h.matched
            WHERE h.copy IS NULL
        ) l ON l.run = m.run""",
    # For each delivery at a node: the highest sequence of the same publisher that was delivered there before.
    "orders": """
        SELECT h.run AS run, h.sequence AS sequence, m.run AS moves,
            MAX(h.sequence) OVER (
                PARTITION BY h.run, h.node, h.publisher ORDER BY h.place, h.sequence
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS latest
        FROM (
            SELECT d.run AS run, d.node AS node, d.publisher AS publisher, d.sequence AS sequence,
                MIN(d.t) AS place
            FROM deliveries d
            JOIN events e ON e.run = d.run AND e.publisher = d.publisher AND e.sequence = d.sequence
            WHERE d.matched
            GROUP BY d.run, d.node, d.publisher, d.sequence
        ) h
        LEFT JOIN (SELECT DISTINCT run FROM handoffs) m ON m.run = h.run""",
    "load_samples": """
        SELECT l.run AS run, l.node AS node, l.load AS load
        FROM loads l JOIN runs r ON r.run = l.run
        WHERE l.t - l.span >= r.warmup""",
    "path_samples": """
        SELECT p.run AS run, p.kind AS kind, p.pairs AS pairs, p.hops AS hops
        FROM paths p JOIN runs r ON r.run = p.run
        WHERE p.t >= r.warmup""",
}
"""What several metrics share, in an order in which each uses only those before it."""


class Metric(NamedTuple):
    """One figure of a run.

    `value` is an aggregate over `source` per run, `empty` what a run without rows there gets. Without a
    source, `value` is made of the other figures of the same run.
    """

    unit: str
    meaning: str
    source: str
    value: str
    empty: str = "NULL"


class StudyMetrics(NamedTuple):
    """What a study (`lab/studies/`) measures beside the metrics of every run."""

    metrics: Mapping[str, Metric] = {}
    relations: Mapping[str, str] = {}  # as `RELATIONS`, after those
    columns: Mapping[str, Mapping[str, str]] = {}  # as `COLUMNS`: what its relations read beside


NOTHING_BESIDE = StudyMetrics()


def _of_role(role: str) -> str:
    return f"""
        CASE WHEN MAX(CASE WHEN role = '{role}' THEN held END) = 1
        THEN SUM(CASE WHEN role = '{role}' THEN held_for ELSE 0 END) * 1e0 / NULLIF(MAX(span), 0) END"""


def _path_hops(kind: str) -> str:
    return f"""
        SUM(CASE WHEN kind = '{kind}' THEN hops ELSE 0 END) * 1e0
        / NULLIF(SUM(CASE WHEN kind = '{kind}' THEN pairs ELSE 0 END), 0)"""


_FOR_ONE = "kind = 'control' AND layer <> 'underlay' AND message <> 'grph'"
_REPAIRED = "CASE WHEN change = 'repaired' AND counted THEN value END"

_OWN: dict[str, Metric] = {
    "published": Metric("events", "events published", "events", "COUNT(*)", "0"),
    "expected": Metric("pairs", "(event, subscriber) pairs that should be served", "pairs", "COUNT(*)", "0"),
    "delivered": Metric("pairs", "expected pairs delivered at least once", "pairs", "COUNT(latency)", "0"),
    "duplicates": Metric(
        "deliveries",
        "deliveries to an application beyond the first of the same event",
        "hand_overs",
        "SUM(CASE WHEN copy > 1 THEN 1 ELSE 0 END)",
        "0",
    ),
    "misdelivered": Metric(
        "deliveries",
        "deliveries whose filter does not match",
        "hand_overs",
        "SUM(CASE WHEN matched THEN 0 ELSE 1 END)",
        "0",
    ),
    "delivery_ratio": Metric("", "delivered over expected", "", "delivered * 1e0 / NULLIF(expected, 0)"),
    "reachable_ratio": Metric(
        "",
        "share of expected pairs with a path in the contact graph when the event was published",
        "pairs",
        "SUM(CASE WHEN reachable THEN 1 ELSE 0 END) * 1e0 / NULLIF(COUNT(*), 0)",
    ),
    "delivery_ratio_reachable": Metric(
        "",
        "delivery ratio among the reachable pairs",
        "pairs",
        "COUNT(CASE WHEN reachable THEN latency END) * 1e0"
        " / NULLIF(COUNT(CASE WHEN reachable THEN 1 END), 0)",
    ),
    "latency_p50": Metric(
        "s", "publication to first delivery, median of the pairs", "pairs", "percentile(latency, 0.5) / 1e6"
    ),
    "latency_p95": Metric(
        "s",
        "publication to first delivery, 95th percentile of the pairs",
        "pairs",
        "percentile(latency, 0.95) / 1e6",
    ),
    "hops_mean": Metric(
        "hops",
        "radio hops of the first delivered copy, mean of the pairs",
        "pairs",
        "SUM(hops) * 1e0 / NULLIF(COUNT(hops), 0)",
    ),
    "control_messages": Metric(
        "frames",
        "radio transmissions of control frames, every relay and every retry counted",
        "frames",
        "SUM(CASE WHEN kind = 'control' THEN 1 ELSE 0 END)",
        "0",
    ),
    "control_sent": Metric(
        "messages",
        "control messages that nodes sent, relays counted and retries of the link layer not",
        "frames",
        "SUM(CASE WHEN kind = 'control' AND attempt = 1 THEN 1 ELSE 0 END)",
        "0",
    ),
    "control_bytes": Metric(
        "octets",
        "size of the control frames sent, link-layer headers apart",
        "frames",
        "SUM(CASE WHEN kind = 'control' THEN size ELSE 0 END)",
        "0",
    ),
    "data_messages": Metric(
        "frames",
        "radio transmissions of data frames, every relay and every retry counted",
        "frames",
        "SUM(CASE WHEN kind = 'data' THEN 1 ELSE 0 END)",
        "0",
    ),
    "data_bytes": Metric(
        "octets",
        "size of the data frames sent, link-layer headers apart",
        "frames",
        "SUM(CASE WHEN kind = 'data' THEN size ELSE 0 END)",
        "0",
    ),
    "underlay_bytes": Metric(
        "octets",
        "the part of the control octets that finds neighbours and routes",
        "frames",
        "SUM(CASE WHEN layer = 'underlay' THEN size ELSE 0 END)",
        "0",
    ),
    "update_bytes": Metric(
        "octets",
        "the part of the control octets that spreads what an overlay's brokers and clients say of themselves",
        "frames",
        "SUM(CASE WHEN kind = 'control' AND message IN ('rows', 'numbers', 'topology') THEN size ELSE 0 END)",
        "0",
    ),
    "air_bytes": Metric(
        "octets",
        "all link-layer frames that an ether saw, every attempt and every protocol's own traffic counted",
        "air_frames",
        "SUM(octets)",
    ),
    "air_bytes_ratio": Metric(
        "",
        "octets on the air over payload octets of the delivered pairs",
        "",
        "air_bytes * 1e0 / NULLIF(delivered_bytes, 0)",
    ),
    "control_overhead": Metric(
        "frames per pair",
        "control messages over delivered pairs",
        "",
        "control_messages * 1e0 / NULLIF(delivered, 0)",
    ),
    "control_bytes_ratio": Metric(
        "",
        "control octets sent over payload octets handed to applications",
        "",
        "control_bytes * 1e0 / NULLIF(application_bytes, 0)",
    ),
    "own_control_ratio": Metric(
        "",
        "control octets that nodes sent for themselves over those for others, what is for all apart",
        "frames",
        # Beacons and group hellos are for all (acyclic overlay, 6.2.2).
        f"SUM(CASE WHEN {_FOR_ONE} AND own THEN size ELSE 0 END) * 1e0"
        f" / NULLIF(SUM(CASE WHEN {_FOR_ONE} AND NOT own THEN size ELSE 0 END), 0)",
    ),
    "own_handled_ratio": Metric(
        "",
        "octets of requests, replies and activations that came in for the receiver's own operations"
        " over those for others'",
        "handled",
        "SUM(CASE WHEN whose = 'own' THEN octets ELSE 0 END) * 1e0"
        " / NULLIF(SUM(CASE WHEN whose = 'others' THEN octets ELSE 0 END), 0)",
    ),
    "link_breaks_per_s": Metric(
        "1/s",
        "overlay links lost per second, in the whole network",
        "overlay_links",
        "CASE WHEN COUNT(CASE WHEN change <> 'repaired' THEN 1 END) > 0 THEN"
        " COUNT(CASE WHEN change = 'link_down' AND counted THEN 1 END) * 1e6 / NULLIF(MAX(span), 0) END",
    ),
    "reconnect_ms_mean": Metric(
        "ms",
        "how long repairs of overlay links took, mean",
        "overlay_links",
        # On the integer grid of microseconds, where the order of summation does not matter.
        f"SUM(CAST(ROUND(({_REPAIRED}) * 1000) AS BIGINT)) / 1e3 / NULLIF(COUNT({_REPAIRED}), 0)",
    ),
    "reconnect_ms_min": Metric("ms", "the quickest repair", "overlay_links", f"MIN({_REPAIRED})"),
    "reconnect_ms_max": Metric("ms", "the slowest repair", "overlay_links", f"MAX({_REPAIRED})"),
    "cycles": Metric(
        "instants", "instants at which the overlay had a cycle", "overlay_health", "MAX(cycles)"
    ),
    "excess_partitions": Metric(
        "components",
        "time average of overlay components beyond the physical ones",
        "overlay_health",
        "MAX(excess_partitions)",
    ),
    "brokers_mean": Metric("nodes", "nodes that are brokers, over time", "role_steps", _of_role("broker")),
    "mprs_mean": Metric(
        "nodes", "nodes that are multipoint relays, over time", "role_steps", _of_role("mpr")
    ),
    "forwarders_mean": Metric(
        "nodes", "nodes in a forwarding group, over time", "role_steps", _of_role("forwarding")
    ),
    "channels_mean": Metric(
        "channels",
        "multicast groups of a publisher's broker, over the time in which it has any",
        "channel_steps",
        "SUM(channels * lasted) * 1e0 / NULLIF(SUM(CASE WHEN channels > 0 THEN lasted ELSE 0 END), 0)",
    ),
    "noise": Metric(
        "pairs",
        "(event, node) pairs in which a node received an event that nobody there wanted",
        "reaches",
        "SUM(unwanted)",
        "0",
    ),
    "noise_relayed": Metric(
        "pairs",
        "the part of the noise at nodes that sent the event on",
        "reaches",
        "SUM(relayed)",
        "0",
    ),
    "noise_ratio": Metric(
        "",
        "share of the nodes that an event reached where nobody wanted it",
        "reaches",
        "SUM(unwanted) * 1e0 / NULLIF(SUM(nodes), 0)",
    ),
    "path_hops_mean": Metric(
        "hops",
        "physical length of overlay paths between the sampled pairs",
        "path_samples",
        _path_hops("overlay"),
    ),
    "path_hops_network": Metric(
        "hops",
        "length of the shortest physical paths between brokers that have one",
        "path_samples",
        _path_hops("network"),
    ),
    "degree_mean": Metric(
        "nodes",
        "how many nodes hear a node, mean over nodes and time, crashes apart",
        "plan_changes",
        "SUM(stands) * 1e0 / NULLIF(MAX(span), 0) / NULLIF(MAX(nodes), 0)",
    ),
    "link_changes_per_s": Metric(
        "1/s",
        "links of the contact plan that come or go per second, in the whole network",
        "plan_changes",
        "SUM(counted) * 1e6 / NULLIF(MAX(span), 0)",
    ),
    "handoffs": Metric(
        "handoffs",
        "relocations of a client and its modulators that came to their end",
        "relocations",
        "SUM(CASE WHEN outcome = 'moved' THEN 1 ELSE 0 END)",
    ),
    "handoff_ms_mean": Metric(
        "ms",
        "how long a relocation took, mean",
        "relocations",
        "SUM(CASE WHEN outcome = 'moved' THEN lasted END) / 1e3"
        " / NULLIF(COUNT(CASE WHEN outcome = 'moved' THEN 1 END), 0)",
    ),
    "lost_in_handoff": Metric(
        "pairs",
        "expected pairs never delivered whose event was published while the consumer was being moved",
        "relocation_losses",
        "COUNT(pair)",
    ),
    "reordered": Metric(
        "pairs",
        "first deliveries after a later event of the same publisher, where consumers are moved",
        "orders",
        "CASE WHEN MAX(moves) IS NOT NULL THEN SUM(CASE WHEN latest > sequence THEN 1 ELSE 0 END) END",
    ),
    "broker_load_max": Metric(
        "s/s", "modulator time per second, the busiest ten seconds of any broker", "load_samples", "MAX(load)"
    ),
    "broker_load_mean": Metric(
        "s/s",
        "modulator time per second, average broker",
        "load_samples",
        "SUM(CAST(ROUND(load * 1e9) AS BIGINT)) / 1e9 / NULLIF(COUNT(load), 0)",
    ),
    "limit_delivery": Metric(
        "",
        "share of expected pairs that some protocol could have served in time",
        "attainments",
        "COUNT(earliest) * 1e0 / NULLIF(COUNT(*), 0)",
    ),
    "delivery_of_limit": Metric(
        "",
        "pairs delivered in time over those that some protocol could have served in time",
        "attainments",
        "COUNT(CASE WHEN t + latency <= deadline THEN earliest END) * 1e0 / NULLIF(COUNT(earliest), 0)",
    ),
    "latency_excess_p50": Metric(
        "s",
        "first delivery minus earliest possible arrival, median of the attainable pairs delivered",
        "attainments",
        "percentile(t + latency - earliest, 0.5) / 1e6",
    ),
    "latency_excess_p95": Metric(
        "s",
        "first delivery minus earliest possible arrival, 95th percentile of the attainable pairs delivered",
        "attainments",
        "percentile(t + latency - earliest, 0.95) / 1e6",
    ),
    "limit_events": Metric(
        "events",
        "events whose fewest broadcasts were computed",
        "bounded_events",
        "COUNT(*)",
    ),
    "limit_transmissions": Metric(
        "frames",
        "fewest broadcasts that serve, in time, the pairs of those events that were served",
        "bounded_events",
        "SUM(fewest)",
    ),
    "transmissions_of_limit": Metric(
        "",
        "data frames sent for those events, every relay and every retry counted, over the fewest",
        "bounded_events",
        "SUM(frames) * 1e0 / NULLIF(SUM(fewest), 0)",
    ),
    "airtime_of_limit": Metric(
        "",
        "airtime of all frames, control and retries included, over that of the fewest broadcasts",
        "",
        "airtime * 1e0 * limit_events / NULLIF(published, 0) / NULLIF(limit_airtime, 0)",
    ),
    "sim_events": Metric("events", "simulator events executed", "runs", "MAX(sim_events)"),
    "wall_s": Metric("s", "wall-clock seconds", "runs", "MAX(wall_s)"),
}
"""By the design's names, in its order. A metric for which a strategy writes no records is NULL."""

_AUXILIARY: dict[str, Metric] = {
    "airtime": Metric("us", "airtime of all frames", "frames", "SUM(airtime)", "0"),
    "limit_airtime": Metric("us", "airtime of the fewest broadcasts", "bounded_events", "SUM(least_airtime)"),
    "application_bytes": Metric("octets", "payload handed to applications", "hand_overs", "SUM(size)", "0"),
    "delivered_bytes": Metric(
        "octets",
        "payload of the delivered pairs, repeats left out",
        "pairs",
        "SUM(size)",
        "0",
    ),
}


class MetricRegistry(Registry[None, Metric, NothingDeclared], Mapping[str, Metric]):
    """The metrics by name: our own in the design's order, then those of plug-ins.

    A plug-in's is measured in every run once it is loaded: by a file's `modules`, or as an entry point. One
    that cannot be used is left out, with a line in the log.
    """

    def add(self, name: str, metric: Metric) -> None:  # type: ignore[override]
        """A metric from anywhere. It is tried on empty tables at once, so that it cannot spoil a run."""
        origin, plugin = origin_of(sys._getframe(1).f_globals.get("__name__"))
        where = f"{self.kind} {name!r} ({origin})"
        if not isinstance(metric, Metric):
            raise PluginError(where, f"is {metric!r}; allowed: a Metric")
        if not name.isidentifier():
            raise PluginError(where, "is no column's name; allowed: letters, digits and _")
        try:
            with empty_tables() as database:
                database.execute(query({**self._metrics(), name: metric}))
        except sqlite3.Error as error:
            raise PluginError(where, f"is no SQL that can be run: {error}") from None
        self._put(name, RegisteredPart(None, metric, NothingDeclared(), origin, plugin))

    def own(self, metrics: Mapping[str, Metric]) -> None:
        for name, metric in metrics.items():
            self._put(name, RegisteredPart(None, metric, NothingDeclared(), BUILT_IN, None))

    def load(self) -> None:
        """Load entry points too: a measurement computes all metrics there are."""
        for name in self._points().keys() - self._entries.keys() - self._refused.keys():
            try:
                self._entry(name)
            except PluginError as error:
                self._refused[name] = error
                logger.warning("%s", error)

    def __init__(self) -> None:
        super().__init__("metric", "roamcast.metrics", NothingDeclared)
        self._refused: dict[str, PluginError] = {}

    def __getitem__(self, name: str) -> Metric:
        metric: Metric = self._entries[name].make
        return metric

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _metrics(self) -> dict[str, Metric]:
        return {name: self[name] for name in self}


METRICS = MetricRegistry()
METRICS.own(_OWN)


def metric_of(name: str) -> Metric:
    """The metric of a column of a sweep's table; without a description if its plug-in is not loaded here."""
    return METRICS.get(name) or Metric("", "a metric of a plug-in that is not loaded here", "", "NULL")


def query(metrics: Mapping[str, Metric] | None = None, beside: StudyMetrics = NOTHING_BESIDE) -> str:
    """One statement for all metrics: a row per run, `run` first, then the columns of `METRICS`."""
    if metrics is None:
        METRICS.load()
        metrics = {**METRICS, **beside.metrics}
    derived = any(not metric.source for metric in metrics.values())
    figures = {**metrics, **_AUXILIARY} if derived else dict(metrics)
    sources = list(dict.fromkeys(metric.source for metric in figures.values() if metric.source))
    relations = {**RELATIONS, **beside.relations}
    needed = relations_of(sources, relations)
    steps = [f"{name} AS ({sql})" for name, sql in relations.items() if name in needed]
    for source in sources:
        values = [f"{m.value} AS {name}" for name, m in figures.items() if m.source == source]
        steps.append(f"of_{source} AS (SELECT run, {', '.join(values)} FROM {source} GROUP BY run)")
    aggregates = [
        f"COALESCE(of_{m.source}.{name}, {m.empty}) AS {name}"
        if m.empty != "NULL"
        else f"of_{m.source}.{name}"
        for name, m in figures.items()
        if m.source
    ]
    joins = " ".join(f"LEFT JOIN of_{source} ON of_{source}.run = runs.run" for source in sources)
    steps.append(f"figures AS (SELECT runs.run AS run, {', '.join(aggregates)} FROM runs {joins})")
    columns = [name if metric.source else f"{metric.value} AS {name}" for name, metric in metrics.items()]
    return f"WITH {', '.join(steps)} SELECT run, {', '.join(columns)} FROM figures ORDER BY run"


def relations_of(sources: Iterable[str], relations: Mapping[str, str] = RELATIONS) -> set[str]:
    """The relations and tables that these are computed from, themselves included."""
    needed = set(sources)
    for name in reversed(list(relations)):
        if name in needed:
            needed |= set(re.findall(r"\b(?:FROM|JOIN) (\w+)", relations[name]))
    return needed


COLUMNS: dict[str, dict[str, str]] = {
    "publications": {"t": "BIGINT", "publisher": "INT", "sequence": "BIGINT", "size": "BIGINT"},
    "deliveries": {
        "t": "BIGINT",
        "node": "INT",
        "publisher": "INT",
        "sequence": "BIGINT",
        "hops": "BIGINT",
        "matched": "BOOLEAN",
    },
    "transmissions": {
        "t": "BIGINT",
        "kind": "TEXT",
        "message": "TEXT",
        "size": "BIGINT",
        "own": "BOOLEAN",
        "layer": "TEXT",
        "attempt": "BIGINT",
        "airtime": "BIGINT",
        "publisher": "INT",
        "sequence": "BIGINT",
    },
    "air": {"t": "BIGINT", "octets": "BIGINT"},
    "faults": {"t": "BIGINT", "kind": "TEXT", "node": "INT"},
    "overlay": {"t": "BIGINT", "node": "INT", "change": "TEXT", "role": "TEXT", "value": "DOUBLE"},
    "overlay_health": {"cycles": "BIGINT", "excess_partitions": "DOUBLE"},
    "handoffs": {
        "t": "BIGINT",
        "node": "INT",
        "started": "BIGINT",
        "outcome": "TEXT",
    },
    "loads": {"t": "BIGINT", "node": "INT", "load": "DOUBLE", "span": "BIGINT"},
    "links": {"t": "BIGINT", "both": "BOOLEAN", "up": "BOOLEAN"},
    "paths": {"t": "BIGINT", "kind": "TEXT", "pairs": "BIGINT", "hops": "BIGINT"},
    "reached": {
        "publisher": "INT",
        "sequence": "BIGINT",
        "nodes": "BIGINT",
        "unwanted": "BIGINT",
        "relayed": "BIGINT",
    },
    "expected": {"publisher": "INT", "sequence": "BIGINT", "node": "INT", "reachable": "BOOLEAN"},
    "attainable": {"publisher": "INT", "sequence": "BIGINT", "node": "INT", "t": "BIGINT"},
    "limits": {
        "publisher": "INT",
        "sequence": "BIGINT",
        "deadline": "BIGINT",
        "airtime": "BIGINT",
        "fewest": "BIGINT",
    },
}
"""The columns that the metrics read; the pipeline need load no others."""
RUN_COLUMNS = {
    "nodes": "BIGINT",
    "warmup": "BIGINT",
    "duration": "BIGINT",
    "sim_events": "BIGINT",
    "wall_s": "DOUBLE",
}


def measure(
    tables: Mapping[str, pa.Table], run: RunInfo, beside: StudyMetrics = NOTHING_BESIDE
) -> dict[str, Figure]:
    """All metrics of one run, in the design's order, then a study's."""
    columns = {name: {**own, **beside.columns.get(name, {})} for name, own in COLUMNS.items()}
    with empty_tables(columns) as database:
        for name, of_table in columns.items():
            _insert(database, name, of_table, [plain(tables[name][column]) for column in of_table])
        _insert(database, "runs", RUN_COLUMNS, [[getattr(run, column)] for column in RUN_COLUMNS])
        cursor = database.execute(query(beside=beside))
        names = [column[0] for column in cursor.description]
        (row,) = cursor.fetchall()
    return dict(zip(names[1:], row[1:], strict=True))


@contextmanager
def empty_tables(tables: Mapping[str, Mapping[str, str]] = COLUMNS) -> Iterator[sqlite3.Connection]:
    """A database with all tables, empty."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.create_aggregate("percentile", 2, _Percentile)  # type: ignore[arg-type]
        # One run needs no identifier; the column is there because the definitions are those of many runs.
        for name, columns in [*tables.items(), ("runs", RUN_COLUMNS)]:
            types = ", ".join(f"`{column}` {sql_type}" for column, sql_type in columns.items())
            database.execute(f"CREATE TABLE {name} (run INT DEFAULT 0, {types})")
        yield database


def _insert(
    database: sqlite3.Connection, name: str, columns: Mapping[str, str], values: list[list[object]]
) -> None:
    marks = ", ".join("?" for _ in columns)
    names = ", ".join(f"`{column}`" for column in columns)
    statement = f"INSERT INTO {name} ({names}) VALUES ({marks})"
    database.executemany(statement, zip(*values, strict=True))


class _Percentile:
    """Spark's `percentile(value, share)`, number for number: exact, linear between neighbours."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._share = 0.0

    def step(self, value: float | None, share: float) -> None:
        self._share = share
        if value is not None:
            self._values.append(value)

    def finalize(self) -> float | None:
        if not self._values:
            return None
        self._values.sort()
        position = (len(self._values) - 1) * self._share
        lower = math.floor(position)
        low, high = float(self._values[lower]), float(self._values[math.ceil(position)])
        return low + (position - lower) * (high - low)
