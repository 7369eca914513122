"""`watch` on Spark: every segment once, whatever happens, and what was not counted is named."""

import io
import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from rich.console import Console
from tests.lab.live.segments import write_node, write_trace
from tests.lab.live.test_windows import by_hand, published, random_trace, transmitted

from roamcast.cli import app
from roamcast.cli.mesh_page import MeshPage
from roamcast.errors import FileError, InputError, RoamcastError
from roamcast.lab.live import streaming
from roamcast.lab.live.screen import WindowScreen
from roamcast.lab.live.streaming import Numbers, read_unread, read_windows, watch
from roamcast.runtime.live.report.segments import SegmentId
from roamcast.trace import Delivered, OverlayChanged, Subscribed
from roamcast.units import micros

pytestmark = pytest.mark.spark
SETTINGS: dict[str, Any] = {"window_s": 5.0, "late_s": 1_000.0, "once": True}


class Killed(Exception):  # noqa: N818 - it is no error
    pass


def rows_of(out: Path, run: str) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name not in ("run", "strategy")}
        for row in read_windows(str(out)).to_pylist()
        if row["run"] == run
    ]


def test_a_worker_that_starts_too_late_on_a_busy_machine_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    enough = 3

    def late(*_: Any) -> None:
        tries.append(1)
        if len(tries) < enough:
            raise PySparkException("Timed out while waiting for the Python worker to connect back")

    monkeypatch.setattr(streaming, "_stream", late)
    folder, out = tmp_path / "traces", tmp_path / "out"
    folder.mkdir()
    watch(str(folder), str(out), **SETTINGS)
    assert len(tries) == enough
    tries.clear()
    enough = 9
    with pytest.raises(RoamcastError, match="connect back"):
        watch(str(folder), str(out), **SETTINGS)
    assert len(tries) == streaming.WORKER_TRIES


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
        raise Killed  # after the table was written, before Spark notes that the batch is done

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
    (out / "watch.json").write_text('{"folder": "/", "window": 1, "late": 1}')
    with pytest.raises(InputError, match="belongs to another folder, window or lateness"):
        watch(str(folder), str(out), once=True)


def test_an_offset_is_a_few_ranges() -> None:
    numbers = Numbers({})
    for number in (3, 1, 2, 7, 6, 9):
        numbers.add(SegmentId(5, 1, number))
    numbers.add(SegmentId(5, 2, 0))
    assert numbers.offset() == {"5-1": "1-3,6-7,9-9", "5-2": "0-0"}
    assert SegmentId(5, 1, 2) in numbers and SegmentId(5, 1, 4) not in numbers
    left = numbers.without(Numbers({"5-1": "0-6"}))
    assert left == [SegmentId(5, 1, 7), SegmentId(5, 1, 9), SegmentId(5, 2, 0)]


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
