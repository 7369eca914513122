"""The windows, without Spark: what they count, and what they may forget."""

import hashlib
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.lab.live.segments import BEGAN, write_node, write_trace

from roamcast.errors import FileError
from roamcast.lab.live import windows
from roamcast.lab.live.extract import Extract, extract
from roamcast.lab.live.windows import RunWindows, table_schema
from roamcast.lab.run.expected import expected
from roamcast.lab.run.metrics import measure
from roamcast.lab.run.tables import RunInfo, tables
from roamcast.trace import Delivered, Published, Subscribed, Trace, Transmitted
from roamcast.units import SECOND, Micros, micros

WINDOW: Micros = 5 * SECOND
LATE: Micros = 1_000 * SECOND
FIGURES = [name for name in table_schema().names if name not in ("strategy", "run", "window")]


def published(t: float, publisher: int, sequence: int, level: int, lifetime: float = 0.0) -> Published:
    kind = "memorized" if lifetime else "realtime"
    attributes = f'{{"level": {level}}}'
    return Published(
        micros(t), publisher, sequence, kind, micros(lifetime), 100, "", "", attributes, (), False
    )


def transmitted(t: float, node: int, kind: str, size: int) -> Transmitted:
    return Transmitted(micros(t), node, None, kind, "m", size, 1, 10, None, None, True, 0, 0, 0)


def random_trace(seed: int) -> Trace:
    chance = random.Random(seed)
    trace = Trace()
    for node in range(6):
        since = chance.uniform(0.1, 6)
        text = f"level > {chance.randrange(4)}"
        trace.add(Subscribed(micros(since), node, 1, text, True))
        if chance.random() < 0.4:
            trace.add(Subscribed(micros(since + chance.uniform(1, 10)), node, 1, text, False))
    for sequence in range(60):
        t = chance.uniform(0.1, 30)
        event = published(t, chance.randrange(3), sequence, chance.randrange(6), chance.choice([0.0, 4.0]))
        trace.add(event)
        for node in range(6):
            for _ in range(chance.choice([0, 1, 1, 2])):
                late = micros(chance.uniform(0.001, 9.0))
                hops, matched = chance.randrange(1, 5), chance.random() < 0.9
                trace.add(Delivered(event.t + late, node, event.publisher, sequence, hops, matched))
    for _ in range(200):
        node, kind = chance.randrange(6), chance.choice(["control", "data"])
        trace.add(transmitted(chance.uniform(0.1, 42), node, kind, chance.randrange(200)))
    return trace


def by_hand(trace: Trace) -> list[dict[str, Any]]:
    """Window by window, each measured as if it were a run of its own."""
    everything = expected(trace)
    rows = []
    times = [event.t for event in trace.of(Published)] + [frame.t for frame in trace.of(Transmitted)]
    for start in sorted({time // WINDOW * WINDOW for time in times}):
        part = Trace()
        inside = [e for e in trace.of(Published) if start <= e.t < start + WINDOW]
        ids = {(e.publisher, e.sequence) for e in inside}
        part.records[Published] = list(inside)
        due = [x for x in everything if (x.publisher, x.sequence) in ids]
        part.records[Delivered] = [d for d in trace.of(Delivered) if (d.publisher, d.sequence) in ids]
        part.records[Transmitted] = [s for s in trace.of(Transmitted) if start <= s.t < start + WINDOW]
        info = RunInfo(name="", strategy="flooding", seed=1, nodes=6, duration=WINDOW)
        figures = measure(tables(part, due), info)
        rows.append({"window": BEGAN + start, **{name: figures[name] for name in FIGURES}})
    return rows


def extracts(folder: Path, window: Micros = WINDOW) -> list[Extract]:
    return [extract(path.read_bytes(), path.name, window) for path in sorted(folder.glob("*.trace"))]


def restored(state: RunWindows) -> RunWindows:
    """As Spark's state store gives it back."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=RunWindows)


@pytest.mark.parametrize("seed", range(5))
def test_in_whatever_batches_segments_come_the_windows_are_those_of_one_look_at_all(
    tmp_path: Path, seed: int
) -> None:
    trace = random_trace(seed)
    write_trace(tmp_path, trace)
    wanted = by_hand(trace)
    assert sum(row["published"] for row in wanted) == 60 and sum(row["delivered"] for row in wanted) > 20
    whole, problems = RunWindows().take(extracts(tmp_path), WINDOW, LATE)
    assert sorted(whole, key=lambda row: row["window"]) == wanted and problems == []

    chance = random.Random(seed)
    dealt = extracts(tmp_path)
    chance.shuffle(dealt)  # an event may come last
    state = RunWindows()
    rows: dict[Micros, dict[str, Any]] = {}
    while dealt:
        size = chance.randrange(1, 9)
        part, dealt = dealt[:size], dealt[size:]
        changed, problems = state.take(part, WINDOW, LATE)
        rows |= {row["window"]: row for row in changed}
        assert problems == []
        state = restored(state)
    assert [rows[start] for start in sorted(rows)] == wanted


def test_a_window_is_closed_when_it_lies_far_enough_behind_the_second_newest_node(tmp_path: Path) -> None:
    alice = [Subscribed(1, 1, 1, "level > 0", True), transmitted(100, 1, "data", 9)]
    bob = [published(2, 2, 1, 5), transmitted(40, 2, "data", 9), transmitted(90, 2, "data", 9)]
    write_node(tmp_path, 1, alice)
    state = RunWindows()
    state.take(extracts(tmp_path), WINDOW, 20 * SECOND)
    assert state.closed == BEGAN + 85 * SECOND  # a single node is its own clock; it was heard of until 105 s
    state = RunWindows()
    write_node(tmp_path, 2, bob)
    rows, problems = state.take(extracts(tmp_path), WINDOW, 20 * SECOND)
    assert [row["published"] for row in rows if row["window"] == BEGAN] == [1] and problems == []
    # Everything that lies before is forgotten, but not the subscription that stands.
    assert state.closed == BEGAN + 75 * SECOND and state.events == {}
    assert list(state.traffic) == [BEGAN + 90 * SECOND, BEGAN + 100 * SECOND]
    assert [(s.node, s.stands) for s in state.subscriptions] == [(1, True)]


def test_what_comes_too_late_is_not_counted_and_is_named(tmp_path: Path) -> None:
    for node in (1, 2):
        write_node(tmp_path, node, [transmitted(500, node, "data", 9)])
    early = extracts(tmp_path)
    write_node(
        tmp_path, 3, [published(3, 3, 1, 1), transmitted(4, 3, "data", 9), transmitted(499, 3, "data", 9)]
    )
    late = [one for one in extracts(tmp_path) if one.head.node == 3]
    state = RunWindows()
    state.take(early, WINDOW, 60 * SECOND)
    rows, problems = state.take(late, WINDOW, 60 * SECOND)
    assert [row["data_messages"] for row in rows] == [1]  # the frame at 499 s
    assert [problem.reason for problem in problems] == ["2 records came after their window was closed"]
    assert problems[0].file in {one.file for one in late}


def test_deliveries_without_a_publication_wait_and_are_then_let_go(tmp_path: Path) -> None:
    write_node(tmp_path, 1, [Delivered(SECOND, 1, 9, 1, 1, True), transmitted(2, 1, "data", 9)])
    state = RunWindows()
    _, problems = state.take(extracts(tmp_path), WINDOW, 60 * SECOND)
    assert problems == [] and len(state.deliveries) == 1
    write_node(tmp_path, 2, [transmitted(500, 2, "data", 9)])
    write_node(tmp_path, 3, [transmitted(500, 3, "data", 9)])
    _, problems = state.take([e for e in extracts(tmp_path) if e.head.node > 1], WINDOW, 60 * SECOND)
    assert len(problems) == 1 and "publication came in no segment" in problems[0].reason
    assert state.deliveries == {}


def test_the_state_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "ROWS_MAX", 100)
    for node in (1, 2):
        write_node(tmp_path, node, [published(0.1 + i / 10, node, i, 1) for i in range(1_000)])
    state = RunWindows()
    said = []
    for one in extracts(tmp_path):
        said += state.take([one], WINDOW, LATE)[1]
        assert len(state.events) <= 200
    assert any("closed early" in problem.reason for problem in said)


def test_a_node_that_starts_anew_or_stops_has_no_subscriptions_of_before(tmp_path: Path) -> None:
    write_node(tmp_path, 1, [Subscribed(SECOND, 1, 7, "level > 0", True)], boot=1)
    write_node(tmp_path, 1, [transmitted(40, 1, "control", 9)], boot=2, began=20 * SECOND)
    write_node(tmp_path, 2, [Subscribed(SECOND, 2, 7, "level > 0", True)], stop=30 * SECOND)
    write_node(tmp_path, 3, [published(t, 3, t, 5) for t in (10, 25, 35)])
    rows, _ = RunWindows().take(extracts(tmp_path), WINDOW, LATE)
    expected_at = {(row["window"] - BEGAN) // SECOND: row["expected"] for row in rows if row["published"]}
    assert expected_at == {10: 2, 25: 1, 35: 0}


@pytest.mark.parametrize("ahead", [0, 3_600 * SECOND, -7 * SECOND])
def test_clocks_that_differ_do_not_change_the_latencies(tmp_path: Path, ahead: Micros) -> None:
    """Events both ways, half a second each, between two machines."""
    records: dict[int, list[Any]] = {1: [], 2: []}
    for node, other in ((1, 2), (2, 1)):
        records[node].append(Subscribed(1, node, 1, "level > 0", True))
        for i in range(10):
            event = published(10 + 2 * i + node, node, i, 1)
            records[node].append(event)
            records[other].append(Delivered(event.t + SECOND // 2, other, node, i, 1, True))
    write_node(tmp_path, 1, records[1], clock="a", ahead=0)
    write_node(tmp_path, 2, records[2], clock="b", ahead=ahead)
    # Longer than their difference: which subscriptions stood is taken from the wall clocks as they are.
    rows, _ = RunWindows().take(extracts(tmp_path, 10**12), 10**12, 10**13)
    latencies = {row["latency_p50"] for row in rows if row["delivered"]}
    assert latencies == {0.5}


def test_a_wall_clock_that_is_set_anew_is_followed(tmp_path: Path) -> None:
    write_node(tmp_path, 1, [transmitted(1, 1, "data", 9)], boot=1)
    write_node(tmp_path, 1, [transmitted(20, 1, "data", 9)], boot=2, began=20 * SECOND, ahead=10**6 * SECOND)
    state = RunWindows()
    state.take(extracts(tmp_path), WINDOW, 10**7 * SECOND)
    assert state.bases == {"one machine": BEGAN + 10**6 * SECOND}


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"hops":1', b'"hops":"x"'),
        (b'"hops":1', b'"hops":99999999999999999999'),
        (b'"level > 1"', b'"level >"'),
        (b'{\\"level\\": 7}', b"no"),
        (b'"size":9', b'"size":-9'),
        (b'"opened":0', b'"opened":99999999999999999'),
    ],
)
def test_a_segment_of_garbage_with_a_right_digest_is_refused(tmp_path: Path, good: bytes, bad: bytes) -> None:
    records = [Delivered(SECOND, 1, 9, 1, 1, True), Subscribed(SECOND, 1, 1, "level > 1", True)]
    write_node(tmp_path, 1, [*records, published(1, 1, 1, 7), transmitted(1, 1, "data", 9)])
    (path,) = tmp_path.glob("*.trace")
    *lines, end = path.read_bytes().splitlines(keepends=True)
    data = b"".join(lines)
    assert good in data
    old, new = (hashlib.sha256(part).hexdigest().encode() for part in (data, data.replace(good, bad)))
    with pytest.raises(FileError):
        extract(data.replace(good, bad) + end.replace(old, new), "as-it-came", WINDOW)
