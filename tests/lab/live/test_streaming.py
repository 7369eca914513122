"""`watch`: every segment once, whatever happens, and what was not counted is named."""

import io
import json
import shutil
import urllib.request
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.lab.live.segments import write_node, write_trace
from tests.lab.live.test_windows import by_hand, published, random_trace, transmitted
from tests.lab.storage.object_store import ObjectStore

from roamcast.cli import app
from roamcast.cli.mesh_page import MeshPage
from roamcast.errors import FileError, InputError
from roamcast.lab.live.screen import WindowScreen
from roamcast.lab.live.streaming import WatchState, read_unread, read_windows, watch
from roamcast.lab.storage import Storage
from roamcast.runtime.live.report.segments import SegmentId
from roamcast.trace import Delivered, OverlayChanged, Published, Record, Subscribed
from roamcast.units import micros

SETTINGS: dict[str, Any] = {"window_s": 5.0, "late_s": 1_000.0, "once": True}


class Killed(Exception):  # noqa: N818 - it is no error
    pass


def rows_of(out: Path, run: str) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name not in ("run", "strategy")}
        for row in read_windows(str(out)).to_pylist()
        if row["run"] == run
    ]


def test_restarts_and_a_batch_cut_short_leave_what_one_look_at_everything_gives(tmp_path: Path) -> None:
    made, folder, out = tmp_path / "made", tmp_path / "traces", tmp_path / "out"
    made.mkdir()
    traces = {"a": random_trace(1), "b": random_trace(2)}
    for boot, (run, trace) in enumerate(traces.items()):
        write_trace(made, trace, run=run, boot=boot)
    folder.mkdir()
    shown: list[pa.Table] = []

    def deal(part: list[Path]) -> None:
        for path in part:
            shutil.copy(path, folder / path.name)

    dealt = sorted(made.glob("*.trace"))
    deal(dealt[::2])
    watch(str(folder), str(out), **SETTINGS, on_table=shown.append)
    assert shown and shown[-1].num_rows

    deal(dealt[1::4])

    def die(_: pa.Table) -> None:
        raise Killed  # after the table was written, before the state is

    with pytest.raises(Killed):
        watch(str(folder), str(out), **SETTINGS, on_table=die)
    deal(dealt[3::4])
    watch(str(folder), str(out), **SETTINGS, on_table=shown.append)
    for run, trace in traces.items():
        assert rows_of(out, run) == by_hand(trace)
    assert read_unread(str(out)).num_rows == 0


def test_damaged_deleted_and_foreign_files_stop_nothing_and_are_named(tmp_path: Path) -> None:
    folder, out = tmp_path / "traces", tmp_path / "out"
    folder.mkdir()
    for node in (1, 2):
        write_node(folder, node, [transmitted(1 + 10 * i, node, "data", 9) for i in range(6)])
    first, second, third, *_ = sorted(folder.glob("*.trace"))
    first.write_bytes(first.read_bytes()[:-30])
    second.write_bytes(second.read_bytes().replace(b'"size":9', b'"size":8'))
    (folder / "readme.txt").write_text("no segment")
    said: list[str] = []

    def delete(_: pa.Table) -> None:  # one that was read: nobody needs it again
        third.unlink(missing_ok=True)

    watch(str(folder), str(out), **SETTINGS, on_table=delete, on_unread=said.append)
    watch(str(folder), str(out), **SETTINGS)
    assert sum(row["data_messages"] for row in read_windows(str(out)).to_pylist()) == 10
    unread = read_unread(str(out)).to_pylist()
    assert {row["file"] for row in unread} == {first.name, second.name} and len(said) == 2
    assert {row["reason"].split(";")[0] for row in unread} == {
        "is cut short",
        "is damaged: its digest does not match",
    }


def test_an_output_belongs_to_one_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = tmp_path / "traces", tmp_path / "out"
    with monkeypatch.context() as patch:
        for name, value in (("ENDPOINT_URL", "http://127.0.0.1:9"), ("EC2_METADATA_DISABLED", "true")):
            patch.setenv(f"AWS_{name}", value)
        with pytest.raises(FileError, match=r"^s3://traces/watch\.json: cannot be read"):
            watch("s3://traces", str(out), once=True)
    assert not out.exists(), "a store that does not answer claims nothing"
    with pytest.raises(InputError, match="is no folder"):
        watch(str(folder), str(out), once=True)
    folder.mkdir()
    with pytest.raises(InputError, match="lies inside the watched folder"):
        watch(str(folder), str(folder / "out"), once=True)
    with pytest.raises(InputError, match="window: is 0"):
        watch(str(folder), str(out), window_s=0.0, once=True)
    out.mkdir()
    (out / "x").write_text("y")
    with pytest.raises(InputError, match="holds something else"):
        watch(str(folder), str(out), once=True)
    (out / "x").unlink()
    (out / "watch.json").write_text("{")
    with pytest.raises(InputError, match=r"watch\.json: is no settings"):
        watch(str(folder), str(out), once=True)
    (out / "watch.json").write_text('{"folder": "/", "window": 1, "late": 1, "version": 3}')
    with pytest.raises(InputError, match="belongs to another folder, window or lateness"):
        watch(str(folder), str(out), once=True)


def test_what_was_read_is_a_few_ranges() -> None:
    state = WatchState()
    for number in (3, 1, 2, 7, 6, 9):
        state.add(SegmentId(5, 1, number))
    state.add(SegmentId(5, 2, 0))
    assert state.read == {"5-1": [(1, 3), (6, 7), (9, 9)], "5-2": [(0, 0)]}
    assert [number for number in range(12) if state.has(SegmentId(5, 1, number))] == [1, 2, 3, 6, 7, 9]
    assert not state.has(SegmentId(6, 1, 2))
    random = Random(1)
    numbers = random.sample(range(500), 400)
    for number in numbers:
        assert not state.has(SegmentId(8, 1, number))
        state.add(SegmentId(8, 1, number))
    known = [number for first, last in state.read["8-1"] for number in range(first, last + 1)]
    assert known == sorted(numbers) and len(state.read["8-1"]) < 100


def test_watch_and_its_output_may_be_in_an_object_store(tmp_path: Path, object_store: ObjectStore) -> None:
    """The auditor's case: `watch s3://study/collected --out s3://study/figures --once`."""
    trace = random_trace(4)
    folder = Storage.open(object_store.uri("collected"))
    for path in write_trace(tmp_path, trace):
        folder.write(path.name, path.read_bytes())
    out = object_store.uri("figures")
    for _ in range(2):
        ended = CliRunner().invoke(app, ["watch", str(folder), "--out", out, "--window", "5", "--once"])
        assert ended.exit_code == 0, ended.output
    assert sum(row["published"] for row in read_windows(out).to_pylist()) == len(trace.records[Published])


def test_a_state_that_was_damaged_is_refused(tmp_path: Path) -> None:
    folder, out = tmp_path / "traces", tmp_path / "out"
    folder.mkdir()
    write_trace(folder, random_trace(5))
    watch(str(folder), str(out), **SETTINGS)
    state = bytearray((out / "state").read_bytes())
    state[-9] ^= 1
    (out / "state").write_bytes(state)
    with pytest.raises(FileError, match=r"state: (has not the digest|is no manifest)"):
        watch(str(folder), str(out), **SETTINGS)


def minutes(folder: Path, run: int, stop: bool) -> None:
    """A run of a minute, one every ten minutes: two nodes, an event each ten seconds."""
    at = 600 * run
    for node in (1, 2):
        records: list[Record] = [Subscribed(micros(at), node, 1, "level > 3", True)]
        for second in range(at + 5, at + 60, 10):
            records += [transmitted(second, node, "data", 9)]
            if node == 1:
                records.append(published(second, 1, second, 5))
            else:
                records.append(Delivered(micros(second + 0.5), 2, 1, second, 1, True))
        ends = micros(at + 60) if stop else None
        write_node(folder, node, records, run=f"r{run:03d}", boot=run + 1, began=micros(at), stop=ends)


@pytest.mark.parametrize("stop", [True, False])
def test_runs_that_ended_leave_no_state(tmp_path: Path, stop: bool) -> None:
    """200 runs of a minute left 200 states and 39 MB in Spark's state store."""
    folder, out = tmp_path / "traces", str(tmp_path / "out")
    folder.mkdir()
    counts, sizes = [], []
    total = 16 if stop else 48
    for run in range(total):
        minutes(folder, run, stop)
        watch(str(folder), out, window_s=10.0, late_s=60.0, once=True)
        runs = msgspec.json.decode((tmp_path / "out" / "state").read_bytes())["segment"]["runs"]
        counts.append(len(runs))
        sizes.append(len(msgspec.json.encode(runs)))
    steady = 1 if stop else 37  # six hours of silence are 36 runs
    assert max(counts) == steady and counts[-10:] == [steady] * 10
    assert max(sizes[-5:]) <= 1.05 * max(sizes[-10:-5])
    rows = read_windows(out).to_pylist()
    assert len({row["run"] for row in rows}) == total
    by_run = {(row["run"], row["window"]): row["delivered"] for row in rows}
    late = tmp_path / "late"
    late.mkdir()
    write_node(late, 3, [transmitted(30, 3, "data", 9)], run="r000", boot=99)  # of a run that ended long ago
    for path in late.iterdir():
        shutil.copy(path, folder)
    watch(str(folder), out, window_s=10.0, late_s=60.0, once=True)
    assert {(row["run"], row["window"]): row["delivered"] for row in read_windows(out).to_pylist()} == by_run
    (reason,) = [row["reason"] for row in read_unread(out).to_pylist() if "closed" in row["reason"]]
    assert reason == "1 records came after their window was closed"


def test_a_person_sees_each_window_that_changed(tmp_path: Path) -> None:
    folder, out = tmp_path / "my traces", tmp_path / "out"
    folder.mkdir()
    write_node(folder, 0, [published(1, 0, 1, 5), transmitted(1, 0, "data", 120)])
    here = [Subscribed(1, 1, 1, "level > 3", True), Delivered(micros(1.5), 1, 0, 1, 1, True)]
    write_node(folder, 1, [*here, transmitted(2, 1, "control", 30), transmitted(3, 1, "control", 40)])
    write_node(folder, 2, [Subscribed(1, 2, 1, "level > 4", True)])
    text = io.StringIO()
    with WindowScreen(Console(file=text, width=40)) as screen:
        watch(str(folder), str(out), once=True, on_table=screen)
    assert text.getvalue().splitlines() == [
        "flooding r from 2025-10-09 08:53:20: delivered 1/2 (0.500), latency p50 0.500 s, p95 0.500 s, "
        "control 2 frames, 70 octets"
    ]


def test_a_person_sees_the_mesh_on_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = tmp_path / "traces", tmp_path / "out"
    folder.mkdir()
    write_node(folder, 0, [published(1, 0, 1, 5), OverlayChanged(micros(2), 0, "neighbour_up", 1)])
    write_node(folder, 1, [Subscribed(1, 1, 1, "level > 3", True), Delivered(micros(1.5), 1, 0, 1, 1, True)])
    seen: list[dict[str, Any]] = []

    def look(page: MeshPage) -> None:
        for path, kind in (("", "text/html"), ("mesh.json", "application/json")):
            with urllib.request.urlopen(page.address + path) as answer:
                assert answer.headers["Content-Type"].startswith(kind)
                text = answer.read()
        seen.append(json.loads(text))

    monkeypatch.setattr(MeshPage, "wait", look)
    for _ in range(2):  # the second time from what the first left: no segment is new
        words = ["watch", str(folder), "--out", str(out), "--once", "--web", "--port", "0"]
        ended = CliRunner().invoke(app, words)
        assert ended.exit_code == 0, ended.output
        assert "the mesh is at http://127.0.0.1:" in ended.output
    assert [one["runs"] for one in seen] == [seen[0]["runs"]] * 2
    (run,) = seen[0]["runs"]
    assert [node["hears"] for node in run["nodes"]] == [[1], []]
    assert [row["delivered"] for row in run["windows"]] == [1]
