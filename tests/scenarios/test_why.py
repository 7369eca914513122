"""`why` on whole flooding runs: nothing unexplained, and explanations checked against the raw trace.

The checks here are written from the trace tables alone, by plain loops, and share no code with
`lab/why/inquest.py`: each asks whether what an explanation claims is really in the records.
"""

from collections import Counter, deque
from random import Random
from typing import Any

import pytest

from roamcast.lab.run.runs import RunResult, simulate
from roamcast.lab.why.answer import Explanation, LossReason
from roamcast.lab.why.inquest import explain
from roamcast.scenario import scenario_from

CHECKED = 20

CROWD = {
    "scenario": {"name": "crowd", "duration": 15.0},
    "world": {
        "nodes": 50,
        "area": [1000.0, 1000.0],
        "range": 250.0,
        "mobility": {"model": "random_waypoint", "speed": [5.0, 5.0], "pause": [0.0, 0.0]},
        "radio": {"model": "csma"},
    },
    "roles": {"publishers": 10},
    "workload": {"rate": 2.0},
    "strategy": {"name": "flooding"},
}
SPARSE = {**CROWD, "world": {**CROWD["world"], "area": [2000.0, 2000.0]}}  # type: ignore[dict-item]
FAULTY = {
    **CROWD,
    "scenario": {"name": "faulty", "duration": 15.0},
    "world": {**CROWD["world"], "radio": {"model": "disk", "loss": 0.4, "bitrate": 200_000}},  # type: ignore[dict-item]
    "strategy": {"name": "flooding", "options": {"hop_limit": 3}},
    "workload": {"rate": 2.0, "stop": 15.0},
    "fault": [
        {"at": 4.0, "kind": "crash", "nodes": [1, 2, 3, 5, 8, 13, 21]},
        {"at": 9.0, "kind": "restart", "nodes": [1, 2, 3]},
    ],
}


class Records:
    """The raw tables of a run, as lists of dictionaries."""

    def __init__(self, result: RunResult) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {n: t.to_pylist() for n, t in result.tables.items()}

    def frames(self, explanation: Explanation, sender: int | None = None) -> list[dict[str, Any]]:
        return [
            row
            for row in self.rows["transmissions"]
            if (row["publisher"], row["sequence"]) == explanation.event
            and (sender is None or row["node"] == sender)
        ]

    def held(self, explanation: Explanation, node: int) -> bool:
        """The publisher holds its event; the others if some frame with it reached them."""
        return node == explanation.event.publisher or any(
            node in row["received"] for row in self.frames(explanation)
        )

    def published_at(self, explanation: Explanation) -> int:
        (row,) = (
            r for r in self.rows["publications"] if (r["publisher"], r["sequence"]) == explanation.event
        )
        return int(row["t"])

    def down(self, node: int, at: int) -> bool:
        state = False
        for fault in self.rows["faults"]:
            if fault["t"] <= at and fault["node"] == node:
                state = fault["kind"] == "crash"
        return state

    def links_at(self, at: int) -> dict[int, set[int]]:
        heard: dict[int, set[int]] = {}
        for row in self.rows["links"]:
            if row["t"] > at:
                continue
            pairs = [(row["sender"], row["receiver"])]
            if row["both"]:
                pairs.append((row["receiver"], row["sender"]))
            for sender, receiver in pairs:
                peers = heard.setdefault(sender, set())
                peers.add(receiver) if row["up"] else peers.discard(receiver)
        return {
            sender: {peer for peer in peers if not self.down(peer, at)}
            for sender, peers in heard.items()
            if not self.down(sender, at)
        }

    def connected(self, a: int, b: int, at: int) -> bool:
        links, seen, queue = self.links_at(at), {a}, deque([a])
        while queue:
            for peer in links.get(queue.popleft(), ()):
                if peer not in seen:
                    seen.add(peer)
                    queue.append(peer)
        return b in seen


def check(records: Records, found: Explanation) -> None:
    """What the explanation claims is what the trace says."""
    delivered = {(r["publisher"], r["sequence"], r["node"]) for r in records.rows["deliveries"]}
    assert (*found.event, found.node) not in delivered
    published = records.published_at(found)
    if found.reason is not LossReason.NO_PATH:
        assert records.held(found, found.holder)
    match found.reason:
        case LossReason.NO_PATH:
            assert not records.connected(found.event.publisher, found.node, published)
        case LossReason.SUBSCRIBER_CRASHED:
            assert records.down(found.node, found.t)
        case LossReason.COLLISION | LossReason.FADING:
            column = "collided" if found.reason is LossReason.COLLISION else "faded"
            assert not records.held(found, found.missed)
            frames = records.frames(found, found.holder)
            assert any(found.missed in row[column] for row in frames)
        case LossReason.QUEUE_FULL | LossReason.EXPIRED:
            assert not records.held(found, found.missed)
            assert any(
                row["node"] == found.holder
                and (row["publisher"], row["sequence"]) == found.event
                and row["reason"] == found.reason.value
                for row in records.rows["drops"]
            )
        case LossReason.NOT_SENT:
            assert not records.held(found, found.missed)
            sent = [row["t"] for row in records.frames(found, found.holder)]
            assert sent and all(found.missed not in records.links_at(t)[found.holder] for t in sent)
        case LossReason.LINK_BROKE:
            assert not records.held(found, found.missed)
            frames = records.frames(found, found.holder)
            assert frames and all(found.missed not in row["received"] for row in frames)
        case LossReason.RELAY_CRASHED | LossReason.PUBLISHER_CRASHED:
            crashes = [f["t"] for f in records.rows["faults"] if f["node"] == found.holder]
            assert any(t >= published for t in crashes)
        case LossReason.RUN_ENDED:
            assert found.t >= 14_000_000
        case _:
            pytest.fail(f"nothing to check {found.reason} by; the explanation was {found}")


@pytest.mark.parametrize("scenario", [CROWD, SPARSE, FAULTY], ids=["crowd", "sparse", "faulty"])
def test_every_missing_pair_is_explained_and_twenty_explanations_hold(scenario: dict[str, Any]) -> None:
    result = simulate(scenario_from(scenario))
    found = explain(result.tables, result.info)
    missing = int(result.metrics["expected"] or 0) - int(result.metrics["delivered"] or 0)
    assert missing > 100 and len(found) == missing
    reasons = Counter(explanation.reason for explanation in found)
    assert not reasons.keys() & {LossReason.UNKNOWN, LossReason.FILTERED}
    # Flooding sends once: what a link that came up later would have carried, its holder did not send again.
    assert all("before the link came up" in e.detail for e in found if e.reason is LossReason.NOT_SENT)
    records = Records(result)
    # Rare reasons first, so that all of them are among the twenty.
    shuffled = Random(1).sample(found, len(found))
    chosen: list[Explanation] = []
    while len(chosen) < CHECKED:
        for reason in sorted(reasons, key=lambda r: (reasons[r], r.value)):
            rest = [e for e in shuffled if e.reason is reason and e not in chosen]
            chosen += rest[:1]
    for explanation in chosen[:CHECKED]:
        check(records, explanation)


def test_the_faulty_run_has_many_kinds_of_reasons() -> None:
    """Else the test above checks little."""
    result = simulate(scenario_from(FAULTY))
    reasons = {explanation.reason for explanation in explain(result.tables, result.info)}
    assert {
        LossReason.FADING,
        LossReason.NO_PATH,
        LossReason.EXPIRED,
        LossReason.SUBSCRIBER_CRASHED,
    } <= reasons


def test_hand_made_line_with_one_collision() -> None:
    """0 - 1 - 2, where 0 and 2 cannot hear each other and publish at the same instant: both are lost at 1,
    and what 1 did not get cannot reach the other end."""
    result = simulate(
        scenario_from(
            {
                "scenario": {"name": "hidden", "duration": 5.0},
                "world": {
                    "nodes": 3,
                    "area": [300.0, 10.0],
                    "range": 120.0,
                    "mobility": {"model": "static", "positions": [[0.0, 0.0], [100.0, 0.0], [200.0, 0.0]]},
                    "radio": {"model": "csma"},
                },
                "workload": {"publications": [{"t": 1.0, "node": 0}, {"t": 1.0, "node": 2}]},
                "strategy": {"name": "flooding"},
            }
        )
    )
    found = explain(result.tables, result.info)
    assert [(e.event.publisher, e.node, e.reason, e.holder, e.missed) for e in found] == [
        (0, 1, LossReason.COLLISION, 0, 1),
        (0, 2, LossReason.COLLISION, 0, 1),
        (2, 0, LossReason.COLLISION, 2, 1),
        (2, 1, LossReason.COLLISION, 2, 1),
    ]
