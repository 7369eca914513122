import csv
import gzip
import io
import math
import random
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from roamcast.errors import FileError, InputError
from roamcast.lab.recordings import contacts as job
from roamcast.lab.recordings import recording, shares
from roamcast.lab.recordings.contact_job import ContactGrid, ContactGroup, Gather, GroupsOfChunk
from roamcast.lab.recordings.contacts import contacts, read_plan
from roamcast.lab.spark.session import mapped
from roamcast.units import SECOND
from roamcast.world.contacts import ContactPlan
from roamcast.world.crossings import contact_plan
from roamcast.world.formats import read_contacts, read_motion, write_contacts

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[2] / "data"


def in_memory(trace: Path, range_m: float, max_gap: float | None = None) -> ContactPlan:
    motion = read_motion(trace, max_gap=max_gap)
    return contact_plan(motion.shifted(-motion.begins), range_m, motion.ends - motion.begins)


def rows(plan: ContactPlan) -> list[tuple[int, ...]]:
    columns = (plan.sender, plan.receiver, plan.start, plan.end)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def assert_same_plan(trace: Path, range_m: float, out: Path, max_gap: float | None = None) -> ContactPlan:
    summary = contacts(trace, range_m, out, max_gap=max_gap)
    expected = in_memory(trace, range_m, max_gap)
    found = read_plan(out)
    assert rows(found) == rows(expected)
    assert (found.nodes, found.directed) == (expected.nodes, expected.directed)
    assert (summary.nodes, summary.contacts) == (expected.nodes, len(expected))
    return found


def walkers(path: Path, seed: int, nodes: int, fixes: int, side: float, *, shuffled: bool = False) -> None:
    """Random walks with uneven times, silences and fixes that come twice; some nodes have a single one."""
    chance = random.Random(seed)
    table = []
    for node in range(nodes):
        moment, x, y = chance.uniform(50, 80), chance.uniform(0, side), chance.uniform(0, side)
        for _ in range(1 if node % 10 == 9 else fixes):
            row = (f"car {node * 7 % nodes}", f"{moment:.4f}", repr(x), repr(y))
            table += [row] * (2 if chance.random() < 0.02 else 1)
            moment += chance.choice([1.0, 1.0, 1.0, 0.37, 5.0, 60.0 if chance.random() < 0.1 else 1.0])
            x, y = x + chance.gauss(0, 15), y + chance.gauss(0, 15)
    if shuffled:
        chance.shuffle(table)
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("node", "time", "x", "y"), *table])


def test_the_plan_of_a_random_recording_is_the_one_computed_in_memory(tmp_path: Path) -> None:
    walkers(tmp_path / "trace.csv", seed=1, nodes=40, fixes=60, side=400)
    found = assert_same_plan(tmp_path / "trace.csv", 60.0, tmp_path / "plan.parquet")
    assert len(found) > 300  # else the test shows little
    names = (tmp_path / "plan.names.csv").read_text().splitlines()
    assert names[:3] == ["node,name", "0,car 0", "1,car 1"] and len(names) == 41
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "plan.names.csv",
        "plan.parquet",
        "trace.csv",
    ]


def test_shares_chunks_and_cells_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walkers(tmp_path / "trace.csv", seed=2, nodes=60, fixes=50, side=900, shuffled=True)
    monkeypatch.setattr(shares, "SHARE_BYTES", 20_000)
    monkeypatch.setattr(job, "GROUP_PIECES", 300)
    monkeypatch.setattr(job, "CELL_NODES", 2)
    monkeypatch.setattr(job, "CELL_RANGES_MIN", 2)
    layouts: list[ContactGrid] = []
    layout = job._layout

    def noted(*given: Any) -> ContactGrid:
        layouts.append(layout(*given))
        return layouts[-1]

    monkeypatch.setattr(job, "_layout", noted)
    found = assert_same_plan(tmp_path / "trace.csv", 50.0, tmp_path / "plan.parquet", max_gap=20.0)
    assert len(found) > 100
    assert layouts[0].side is not None and layouts[0].side < 500
    assert layouts[0].chunks > 10


def test_what_tasks_carry_does_not_grow_with_the_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of all nodes of all shares were in every task: 35 MB at 100 shares of 20,000 nodes."""
    walkers(tmp_path / "trace.csv", seed=3, nodes=60, fixes=50, side=900, shuffled=True)
    carried: list[int] = []

    def noted(spark: SparkSession, work: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        if isinstance(work, Gather):
            carried.append(len(cloudpickle.dumps(work)))  # type: ignore[no-untyped-call]
        return mapped(spark, work, values)

    monkeypatch.setattr(job, "mapped", noted)
    whole = contacts(tmp_path / "trace.csv", 50.0, tmp_path / "whole.parquet")
    monkeypatch.setattr(shares, "SHARE_BYTES", 5_000)
    cut = contacts(tmp_path / "trace.csv", 50.0, tmp_path / "cut.parquet")
    assert (tmp_path / "trace.csv").stat().st_size > 20 * 5_000 and whole.contacts == cut.contacts
    assert carried[1] - carried[0] < 100


def test_a_stray_fix_a_month_later_puts_no_more_into_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walkers(tmp_path / "trace.csv", seed=5, nodes=30, fixes=60, side=400)
    sizes: list[list[int]] = []
    groups = job._groups_of_chunks

    def noted(cut: dict[int, list[tuple[ContactGroup, int]]]) -> list[GroupsOfChunk]:
        chunks: dict[int, int] = {}
        for group, pieces in (each for found in cut.values() for each in found):
            chunks[group[0]] = chunks.get(group[0], 0) + pieces
        sizes.append(list(chunks.values()))
        return groups(cut)

    monkeypatch.setattr(job, "_groups_of_chunks", noted)
    plan = assert_same_plan(tmp_path / "trace.csv", 60.0, tmp_path / "plan.parquet")
    with (tmp_path / "trace.csv").open("a") as trace:
        trace.write("car 0,2592000,0,0\n")
    stray = assert_same_plan(tmp_path / "trace.csv", 60.0, tmp_path / "stray.parquet")
    assert len(plan) > 100 and len(stray) >= len(plan)
    usual, with_stray = sizes
    assert len(usual) > 8 and len(with_stray) >= len(usual)  # else nothing is shown
    assert max(with_stray) <= 1.5 * max(usual)


def test_a_compressed_table_is_unpacked_by_a_worker_and_read_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "SHARE_BYTES", 20_000)
    walkers(tmp_path / "trace.csv", seed=6, nodes=30, fixes=60, side=400)
    text = (tmp_path / "trace.csv").read_bytes()
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(text))
    cut: list[int] = []

    def noted(spark: SparkSession, work: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        cut.append(len(values))
        return mapped(spark, work, values)

    monkeypatch.setattr(recording, "mapped", noted)
    plan = assert_same_plan(packed, 60.0, tmp_path / "plan.parquet")
    assert len(plan) > 100 and cut == [1, -(-len(text) // 20_000)]
    line = text.count(b"\n") + 1
    packed.write_bytes(gzip.compress(text + b"car 1,-5,0,0\n"))
    with pytest.raises(FileError, match=rf"packed.csv.gz:{line}: time is .*0 s or later"):
        contacts(packed, 60.0, tmp_path / "other.parquet")
    packed.write_bytes(gzip.compress(text)[:-40])
    with pytest.raises(FileError, match=r"packed.csv.gz: is a damaged or truncated archive"):
        contacts(packed, 60.0, tmp_path / "other.parquet")
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["plan.parquet"]


def test_gaps_in_the_recording_are_respected(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("node,time,x,y\n0,0,0,0\n0,100,0,0\n1,0,5,0\n1,10,5,0\n1,90,5,0\n1,100,5,0\n")
    plan = assert_same_plan(trace, 10.0, tmp_path / "plan.parquet", max_gap=50.0)
    # Node 0 is silent for 100 s and so absent throughout; nobody meets anybody.
    assert rows(plan) == []
    plan = assert_same_plan(trace, 10.0, tmp_path / "always.parquet", max_gap=math.inf)
    assert rows(plan) == [(0, 1, 0, 100 * SECOND)]
    trace.write_text(trace.read_text() + "0,50,0,0\n")
    plan = assert_same_plan(trace, 10.0, tmp_path / "silent.parquet", max_gap=50.0)
    assert rows(plan) == [(0, 1, 0, 10 * SECOND), (0, 1, 90 * SECOND, 100 * SECOND)]


@pytest.mark.parametrize(
    "name",
    [
        "sample-fcd.xml",
        "sample-geographic.csv",
        "sample-one-movement.txt",
        "sample.csv",
        "sample.gpx",
        "sample.movements",
        "sample.ns_movements",
    ],
)
def test_every_format_gives_the_plan_computed_in_memory(name: str, tmp_path: Path) -> None:
    assert_same_plan(DATA / name, 250.0, tmp_path / "plan.parquet")


def cab_files(folder: Path) -> None:
    folder.mkdir()
    chance = random.Random(3)
    for cab in range(12):
        latitude, longitude = 37.75 + chance.uniform(-0.01, 0.01), -122.42 + chance.uniform(-0.01, 0.01)
        lines, moment = [], 1_211_000_000 + chance.randrange(60)
        for _ in range(60):
            lines.append(f"{latitude:.5f} {longitude:.5f} 0 {moment}")
            moment += chance.choice([60, 61, 30, 1000 if chance.random() < 0.2 else 60])
            latitude, longitude = latitude + chance.gauss(0, 0.001), longitude + chance.gauss(0, 0.001)
        (folder / f"new_cab{cab}.txt").write_text("\n".join(reversed(lines)) + "\n")
    (folder / "_cabs.txt").write_text("<cab>\n")


def test_cabs_as_a_folder_in_shares_and_as_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "SHARE_BYTES", 4_000)
    cab_files(tmp_path / "cabs")
    folder = assert_same_plan(tmp_path / "cabs", 300.0, tmp_path / "folder.parquet")
    with tarfile.open(tmp_path / "cabs.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "cabs", "cabs")
    packed = assert_same_plan(tmp_path / "cabs.tar.gz", 300.0, tmp_path / "packed.parquet")
    assert rows(folder) == rows(packed) and len(folder) > 30


def test_csv_plans_are_read_back_by_the_core(tmp_path: Path) -> None:
    trace = DATA / "sample.csv"
    contacts(trace, 250.0, tmp_path / "plan.parquet")
    contacts(trace, 250.0, tmp_path / "packed.csv.gz")
    expected = read_plan(tmp_path / "plan.parquet")
    found = read_contacts(tmp_path / "packed.csv.gz", "plan").plan
    assert rows(found) == rows(expected) and found.nodes == expected.nodes
    # The core writes the same bytes.
    write_contacts(expected, tmp_path / "text.csv", "plan")
    assert gzip.decompress((tmp_path / "packed.csv.gz").read_bytes()) == (tmp_path / "text.csv").read_bytes()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("car 1,1e3,nan,0", "x is 'nan'"),
        ("car 1,-5,0,0", "times are 0 s or later"),
        ("car 1,5,0", "3 columns"),
        ("car 1,5,1e300,0", "between -1e9 and 1e9"),
        (",5,0,0", "printable characters"),
    ],
)
def test_an_impossible_row_is_named_and_nothing_is_written(
    line: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "SHARE_BYTES", 200)
    good = [f"car {k % 3},{k},{k}.5,0" for k in range(60)]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["node,time,x,y", *good[:40], line, *good[40:]]) + "\n")
    with pytest.raises(FileError) as error:
        contacts(trace, 100.0, tmp_path / "plan.parquet")
    assert error.value.where == f"{trace}:42" and problem in error.value.problem
    with pytest.raises(FileError) as by_the_core:
        read_motion(trace)
    assert str(error.value) == str(by_the_core.value)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


def test_two_places_at_one_time_are_refused_with_both_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "SHARE_BYTES", 200)
    good = [f"car {k % 3},{k},{k}.5,0" for k in range(60)]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["node,time,x,y", *good, "car 1,4,99,0"]) + "\n")
    with pytest.raises(FileError) as error:
        contacts(trace, 100.0, tmp_path / "plan.parquet")
    with pytest.raises(FileError) as by_the_core:
        read_motion(trace)
    assert str(error.value) == str(by_the_core.value)
    assert error.value.where == f"{trace}:62" and "see line 6" in error.value.problem
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


def test_unsorted_rows_are_refused_where_order_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "SHARE_BYTES", 300)
    good = [f"{k} {k % 3} {k}.5 0" for k in range(80)]
    trace = tmp_path / "trace.txt"
    trace.write_text("\n".join(["0 100 0 100 0 100", *good]) + "\n")
    assert_same_plan(trace, 5.0, tmp_path / "plan.parquet")
    # Between two shares, each of them sorted: no worker sees it alone.
    trace.write_text("\n".join(["0 100 0 100 0 100", *good[40:], *good[:40]]) + "\n")
    with pytest.raises(FileError, match=r"trace.txt:42: time 0 comes after a later one"):
        contacts(trace, 5.0, tmp_path / "other.parquet")
    assert not (tmp_path / "other.parquet").exists()


def test_quoted_names_and_line_ends_inside_quotes_are_read_as_the_core_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "SHARE_BYTES", 100)
    text = io.StringIO()
    table = [(f"car {k % 3}, red", k, k * 0.5, 0.0, "two\nlines") for k in range(60)]
    csv.writer(text).writerows([("node", "time", "x", "y", "note"), *table])
    (tmp_path / "trace.csv").write_text(text.getvalue(), newline="")
    found = assert_same_plan(tmp_path / "trace.csv", 100.0, tmp_path / "plan.parquet")
    assert len(found) == 3
    assert (tmp_path / "plan.names.csv").read_text().splitlines()[1] == '0,"car 0, red"'


def test_nothing_is_written_over(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    shutil.copy(DATA / "sample.csv", trace)
    for taken in ("plan.csv", "plan.names.csv"):
        (tmp_path / taken).write_text("mine")
        with pytest.raises(InputError, match="exists already"):
            contacts(trace, 100.0, tmp_path / "plan.csv")
        assert (tmp_path / taken).read_text() == "mine"
        (tmp_path / taken).unlink()
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        contacts(trace, 100.0, tmp_path / "plan.txt")
    with pytest.raises(InputError, match="folder does not exist"):
        contacts(trace, 100.0, tmp_path / "none" / "plan.csv")
    with pytest.raises(InputError, match="range"):
        contacts(trace, math.nan, tmp_path / "plan.csv")
    with pytest.raises(FileError, match="does not exist"):
        contacts(tmp_path / "none.csv", 100.0, tmp_path / "plan.csv")


def test_the_parquet_plan_says_its_clock(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("node,time,x,y\n0,1000,0,0\n0,1010,0,0\n1,1002,5,0\n1,1010,5,0\n")
    summary = contacts(trace, 10.0, tmp_path / "plan.parquet")
    metadata = pq.read_schema(tmp_path / "plan.parquet").metadata
    assert (metadata[b"begins"], metadata[b"duration"]) == (b"1000000000", b"10000000")
    assert summary.begins == 1000 * SECOND
    assert rows(read_plan(tmp_path / "plan.parquet")) == [(0, 1, 2 * SECOND, 10 * SECOND)]
    assert not (tmp_path / "plan.names.csv").exists()  # the names are the numbers
    assert np.array_equal(read_plan(tmp_path / "plan.parquet").start, [2 * SECOND])
