import random
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import FileError
from roamcast.lab.run import tables as lab
from roamcast.lab.run.graph import unpack
from roamcast.lab.run.tables import TABLES, Derived, Expected, OverlayJudged, ReachedNodes, RunInfo
from roamcast.trace import (
    Delivered,
    Dropped,
    DropReason,
    FaultHappened,
    LinkChanged,
    Moved,
    OverlayChanged,
    PathsSampled,
    Published,
    Subscribed,
    Trace,
    Transmitted,
)
from roamcast.world.reach import members

RUN = RunInfo(
    name="walkers",
    strategy="flooding",
    seed=7,
    nodes=90,
    duration=10_000_000,
    warmup=1_000_000,
    brokers=(0, 3),
    sim_events=42,
    wall_s=1.5,
    scenario={"world": {"nodes": 90, "area": [10.0, 20.0]}},
)


def one_of_each() -> Trace:
    trace = Trace()
    trace.add(Published(1, 2, 3, "memorized", 4, 256, "a/b", "alarm", '{"level":5}', (4, 7), True))
    trace.add(Published(2, 2, 4, "realtime", 0, 0, "", "", "{}", (), False))
    trace.add(Subscribed(1, 2, 0, "level > 3", True))
    trace.add(Delivered(1, 2, 3, 4, 5, False))
    trace.add(Transmitted(1, 2, None, "data", "flood", 300, 1, 1200, 2, 3, True, 0b101, 1 << 89, 0))
    trace.add(Transmitted(2, 2, 8, "control", "hello", 30, 2, 120, None, None, False, 0, 0, 1 << 8))
    trace.add(Dropped(1, 2, DropReason.QUEUE_FULL, "flood", 2, 3, None, "why"))
    trace.add(Dropped(1, 2, DropReason.WIRE, "hello"))
    trace.add(LinkChanged(0, 1, 2, True, True))
    trace.add(Moved(0, 2, 10.5, 0.000001, False))
    trace.add(FaultHappened(1, "cut", 2, 3))
    trace.add(FaultHappened(1, "crash", 2))
    trace.add(OverlayChanged(1, 2, "repaired", 3, "", 12.5))
    trace.add(OverlayChanged(1, 2, "role_on", role="broker"))
    trace.add(PathsSampled(1, "network", 6, 10))
    return trace


FOLLOWS: tuple[Derived, ...] = (
    OverlayJudged(1, 0.5),
    Expected(1, 2, 3, 4, True, 2),
    Expected(1, 2, 5, 4, False, None),
    ReachedNodes(1, 2, 3, 1, 0),
)


def test_records_survive_tables_and_parquet_unchanged(tmp_path: Path) -> None:
    trace = one_of_each()
    lab.write(lab.tables(trace, FOLLOWS), RUN, tmp_path / "out")
    back = lab.read(tmp_path / "out")
    assert list(back) == [kind.TABLE for kind in TABLES]
    for kind in TABLES:
        derived = [row for row in FOLLOWS if type(row) is kind]
        assert lab.records(back, kind) == trace.records.get(kind, derived)
        assert back[kind.TABLE].schema == lab.schema(kind)


def test_the_schema_is_that_of_the_record_classes() -> None:
    schema = lab.schema(Transmitted)
    assert schema.field("t") == pa.field("t", pa.int64(), nullable=False)
    assert schema.field("node") == pa.field("node", pa.int32(), nullable=False)
    assert schema.field("to") == pa.field("to", pa.int32(), nullable=True)
    assert schema.field("sequence") == pa.field("sequence", pa.int64(), nullable=True)
    assert schema.field("own") == pa.field("own", pa.bool_(), nullable=False)
    assert schema.field("received") == pa.field("received", lab.NODE_LIST, nullable=False)
    assert lab.schema(Dropped).field("reason").type == pa.string()
    assert lab.schema(OverlayChanged).field("value") == pa.field("value", pa.float64(), nullable=True)
    assert lab.schema(Published).field("destinations").type == lab.NODE_LIST


def test_node_sets_become_sorted_lists_of_numbers() -> None:
    made = lab.tables(one_of_each())["transmissions"]
    assert made["received"].to_pylist() == [[0, 2], []]
    assert made["collided"].to_pylist() == [[89], []]
    assert made["faded"].to_pylist() == [[], [8]]


def test_an_empty_trace_has_every_table(tmp_path: Path) -> None:
    lab.write(lab.tables(Trace()), RUN, tmp_path / "out")
    assert {name: len(table) for name, table in lab.read(tmp_path / "out").items()} == {
        kind.TABLE: 0 for kind in TABLES
    }


@given(st.lists(st.sets(st.integers(0, 300), max_size=20), max_size=20))
@settings(max_examples=100, deadline=None)
def test_unpacked_sets_are_the_sets(sets: list[set[int]]) -> None:
    bitmaps = [sum(1 << node for node in nodes) for nodes in sets]
    offsets, nodes = unpack(bitmaps)
    assert [nodes[a:b].tolist() for a, b in pairwise(offsets)] == [sorted(part) for part in sets]
    assert [members(bitmap) for bitmap in bitmaps] == [sorted(part) for part in sets]


def test_sets_are_unpacked_in_parts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(3)
    bitmaps = [source.getrandbits(120) for _ in range(50)]
    whole = unpack(bitmaps)
    monkeypatch.setattr("roamcast.lab.run.graph.UNPACKED_BYTES_MAX", 700)
    parts = unpack(bitmaps)
    assert np.array_equal(whole[0], parts[0]) and np.array_equal(whole[1], parts[1])


def test_the_same_trace_gives_the_same_bytes_whatever_the_wall_clock_says(tmp_path: Path) -> None:
    lab.write(lab.tables(one_of_each()), RUN, tmp_path / "a")
    slower = RunInfo(**{name: getattr(RUN, name) for name in RUN.__struct_fields__} | {"wall_s": 9.0})
    lab.write(lab.tables(one_of_each()), slower, tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted([*(f"{kind.TABLE}.parquet" for kind in TABLES), "run.json"])
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_run_is_written_beside_without_its_wall_clock(tmp_path: Path) -> None:
    lab.write(lab.tables(Trace()), RUN, tmp_path / "out")
    run = lab.read_run(tmp_path / "out")
    assert run.wall_s is None
    assert (run.name, run.seed, run.brokers, run.scenario) == ("walkers", 7, (0, 3), RUN.scenario)


def test_the_same_run_may_be_written_again_and_leaves_nothing_behind(tmp_path: Path) -> None:
    lab.write(lab.tables(Trace()), RUN, tmp_path / "out")
    lab.write(lab.tables(one_of_each()), RUN, tmp_path / "out")
    assert len(lab.read(tmp_path / "out")["publications"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileError, match=r"holds something else \(thesis.txt\); allowed: a new or empty"):
        lab.write(lab.tables(Trace()), RUN, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_trace_of_another_run_is_not_written_over(tmp_path: Path) -> None:
    lab.write(lab.tables(one_of_each()), RUN, tmp_path / "out")
    other = RunInfo(name="walkers", strategy="flooding", seed=8, nodes=90, duration=10)
    with pytest.raises(FileError, match="another run"):
        lab.write(lab.tables(Trace()), other, tmp_path / "out")
    assert len(lab.read(tmp_path / "out")["publications"]) == 2


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(FileError, match="is a file"):
        lab.write(lab.tables(Trace()), RUN, tmp_path / "out")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    broken = lab.tables(Trace())
    del broken["expected"]
    with pytest.raises(KeyError):
        lab.write(broken, RUN, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_missing_corrupt_and_foreign_files_are_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(FileError, match=r"run\.json: is missing"):
        lab.read(out)
    lab.write(lab.tables(Trace()), RUN, out)
    (out / "links.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(FileError, match=r"links\.parquet: is no Parquet file"):
        lab.read(out)
    pq.write_table(pa.table({"x": [1]}), out / "links.parquet")
    with pytest.raises(FileError, match=r"links\.parquet: has columns \['x'\]"):
        lab.read(out)
    wrong = pa.table({f.name: pa.array([], pa.string()) for f in lab.schema(LinkChanged)})
    pq.write_table(wrong, out / "links.parquet")
    with pytest.raises(
        FileError, match=r"links\.parquet: has column t of type string; expected int64 not null"
    ):
        lab.read(out)
    (out / "links.parquet").unlink()
    with pytest.raises(FileError, match=r"links\.parquet: is missing"):
        lab.read(out)
    (out / "run.json").write_text("{")
    with pytest.raises(FileError, match=r"run\.json: is no run description"):
        lab.read_run(out)
    (out / "run.json").unlink()
    with pytest.raises(FileError, match=r"run\.json: is missing"):
        lab.read_run(out)


def test_a_run_column_goes_first_where_runs_lie_together() -> None:
    made = lab.with_run(lab.tables(one_of_each())["deliveries"], "r1")
    assert made.column_names[0] == "run"
    assert made["run"].to_pylist() == ["r1"]


def test_the_documentation_names_every_table_and_column() -> None:
    text = (Path(__file__).parents[3] / "docs" / "study" / "trace.md").read_text()
    for kind in TABLES:
        section = text.split(f"## `{kind.TABLE}`")[1].split("\n## ")[0]
        cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
        listed = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
        assert listed == list(kind.__struct_fields__), kind.TABLE


def test_a_folder_of_the_first_schema_is_read_without_motion(tmp_path: Path) -> None:
    lab.write(lab.tables(one_of_each(), FOLLOWS), RUN, tmp_path / "out")
    for name in ("motion", "limits", "attainable"):
        (tmp_path / "out" / f"{name}.parquet").unlink()
    with pytest.raises(FileError, match=r"motion\.parquet: is missing"):
        lab.read(tmp_path / "out")
    path = tmp_path / "out" / "run.json"
    path.write_text(path.read_text().replace('"schema": 3,', ""))
    assert [len(lab.read(tmp_path / "out")[name]) for name in ("motion", "limits", "attainable")] == [0, 0, 0]
    assert lab.read_run(tmp_path / "out").schema == 1
    path.write_text(path.read_text().replace('"seed"', '"schema": 4, "seed"'))
    with pytest.raises(FileError, match="has schema 4 of the trace; this version reads 1 to 3"):
        lab.read(tmp_path / "out")
