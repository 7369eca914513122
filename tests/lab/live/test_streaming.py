import io
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from rich.console import Console

from roamcast.errors import InputError
from roamcast.lab.live.screen import WindowScreen
from roamcast.lab.live.streaming import Batch, read_windows, watch
from roamcast.lab.live.trace_folder import put
from roamcast.lab.live.windows import FIGURES, WATCHED
from roamcast.lab.run.expected import expected
from roamcast.lab.run.metrics import measure
from roamcast.lab.run.tables import RunInfo, table, tables
from roamcast.lab.spark.session import session
from roamcast.trace import Delivered, Published, Record, Subscribed, Trace, Transmitted
from roamcast.units import SECOND, micros

pytestmark = pytest.mark.spark
WINDOW_S = 5.0


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
        since = chance.uniform(0, 6)
        text = f"level > {chance.randrange(4)}"
        trace.add(Subscribed(micros(since), node, 1, text, True))
        if chance.random() < 0.4:
            trace.add(Subscribed(micros(since + chance.uniform(1, 10)), node, 1, text, False))
    for sequence in range(60):
        t = chance.uniform(0, 30)
        event = published(t, chance.randrange(3), sequence, chance.randrange(6), chance.choice([0.0, 4.0]))
        trace.add(event)
        for node in range(6):
            for _ in range(chance.choice([0, 1, 1, 2])):
                late = micros(chance.uniform(0.001, 9.0))
                trace.add(
                    Delivered(
                        event.t + late,
                        node,
                        event.publisher,
                        sequence,
                        chance.randrange(1, 5),
                        chance.random() < 0.9,
                    )
                )
    for _ in range(200):
        trace.add(
            transmitted(
                chance.uniform(0, 42),
                chance.randrange(6),
                chance.choice(["control", "data"]),
                chance.randrange(200),
            )
        )
    return trace


def by_hand(trace: Trace, run: str, strategy: str) -> list[dict[str, Any]]:
    """Window by window, each measured as if it were a run of its own."""
    everything = expected(trace)
    window = micros(WINDOW_S)
    rows = []
    times = [event.t for event in trace.of(Published)] + [frame.t for frame in trace.of(Transmitted)]
    for start in sorted({time // window * window for time in times}):
        part = Trace()
        inside = [e for e in trace.of(Published) if start <= e.t < start + window]
        ids = {(e.publisher, e.sequence) for e in inside}
        part.records[Published] = list(inside)
        due = [x for x in everything if (x.publisher, x.sequence) in ids]
        part.records[Delivered] = [d for d in trace.of(Delivered) if (d.publisher, d.sequence) in ids]
        part.records[Transmitted] = [s for s in trace.of(Transmitted) if start <= s.t < start + window]
        info = RunInfo(name="", strategy=strategy, seed=1, nodes=6, duration=window)
        figures = measure(tables(part, due), info)
        rows.append(
            {"strategy": strategy, "run": run, "window": start, **{name: figures[name] for name in FIGURES}}
        )
    return rows


def files_of(trace: Trace, seed: int, count: int) -> list[tuple[type[Record], list[Record]]]:
    """The records dealt out at random, as nodes with their own pace would: an event may come last."""
    chance = random.Random(seed)
    dealt: list[tuple[type[Record], list[Record]]] = []
    for kind in WATCHED:
        piles: list[list[Record]] = [[] for _ in range(count)]
        for record in trace.records[kind]:
            chance.choice(piles).append(record)
        dealt += [(kind, pile) for pile in piles]
    chance.shuffle(dealt)
    return dealt


class Killed(Exception):  # noqa: N818 - it is no error
    pass


def test_restarts_and_a_batch_cut_short_leave_what_one_look_at_everything_gives(tmp_path: Path) -> None:
    folder, out = tmp_path / "traces", tmp_path / "out"
    folder.mkdir()
    traces = {"a": (random_trace(1), "flooding"), "b": (random_trace(2), "tree")}
    dealt = [(run, *file) for run, (trace, _) in traces.items() for file in files_of(trace, 3, 3)]

    def deal(part: list[Any]) -> None:
        for run, kind, records in part:
            name = f"{run}-{len(list(folder.rglob('*.parquet')))}"
            put(table(kind, records), kind, folder, name, run=run, strategy=traces[run][1])

    shown: list[pa.Table] = []
    deal(dealt[:8])
    watch(folder, out, window_s=WINDOW_S, once=True, on_table=shown.append)
    assert len(shown) == 1 and shown[0] == read_windows(out)

    deal(dealt[8:16])

    def die(_: pa.Table) -> None:
        raise Killed  # after the table was written, before Spark notes that the batch is done

    with pytest.raises(Killed):
        watch(folder, out, window_s=WINDOW_S, once=True, on_table=die)
    written = read_windows(out)

    deal(dealt[16:])
    watch(folder, out, window_s=WINDOW_S, once=True, on_table=shown.append)
    # The batch that was cut short came again as it was, and changed nothing; then the new files.
    assert len(shown) == 3 and shown[1] == written

    wanted = [row for run, (trace, name) in traces.items() for row in by_hand(trace, run, name)]
    assert read_windows(out).to_pylist() == wanted
    assert sum(row["published"] for row in wanted) == 120  # else the test shows little

    # Nothing new: nothing happens.
    watch(folder, out, window_s=WINDOW_S, once=True, on_table=shown.append)
    assert len(shown) == 3
    assert session().read.parquet(str(out / "windows")).count() == len(wanted)


def test_figures_by_hand_and_files_that_are_no_trace(tmp_path: Path) -> None:
    folder, out = tmp_path / "my traces", tmp_path / "out"  # a blank, because Spark names files by URI
    folder.mkdir()
    mark = {"run": "r", "strategy": "flooding"}
    subscriptions = [Subscribed(0, node, 1, "level > 3", True) for node in (1, 2)]
    put(table(Subscribed, subscriptions), Subscribed, folder, "1", **mark)
    put(table(Published, [published(1, 0, 1, 5), published(12, 0, 2, 9)]), Published, folder, "1", **mark)
    arrivals = [Delivered(micros(1.5), 1, 0, 1, 1, True), Delivered(micros(12.25), 2, 0, 2, 2, True)]
    put(table(Delivered, arrivals), Delivered, folder, "1", **mark)
    frames = [
        transmitted(1, 0, "data", 120),
        transmitted(2, 1, "control", 30),
        transmitted(3, 1, "control", 40),
    ]
    put(table(Transmitted, frames), Transmitted, folder, "1", **mark)
    (folder / "deliveries" / "broken.parquet").write_bytes(b"no")
    pq.write_table(pa.table({"run": ["r"]}), folder / "deliveries" / "short.parquet")
    (folder / "notes").mkdir()
    pq.write_table(pa.table({"a": [1]}), folder / "notes" / "mine.parquet")
    refused: list[str] = []
    text = io.StringIO()
    with WindowScreen(Console(file=text, width=40)) as screen:
        watch(folder, out, once=True, on_table=screen, on_refused=refused.append)
    first, second = read_windows(out).to_pylist()
    assert (first["window"], second["window"]) == (0, 10 * SECOND)
    assert (first["published"], first["expected"], first["delivered"]) == (1, 2, 1)
    assert (first["delivery_ratio"], first["latency_p50"]) == (0.5, 0.5)
    assert (first["control_messages"], first["control_bytes"], first["data_bytes"]) == (2, 70, 120)
    assert (second["delivery_ratio"], second["latency_p95"], second["hops_mean"]) == (0.5, 0.25, 2.0)
    assert text.getvalue().splitlines()[0] == (
        "flooding r from 0 s: delivered 1/2 (0.500), latency p50 0.500 s, p95 0.500 s, "
        "control 2 frames, 70 octets"
    )
    assert [line.rpartition("/")[2].partition(":")[0] for line in refused] == [
        "broken.parquet",
        "short.parquet",
        "mine.parquet",
    ]
    (batch,) = (out / "batches").glob("*.json")
    assert len(msgspec.json.decode(batch.read_bytes(), type=Batch).refused) == 3


def test_an_output_that_belongs_to_something_else_is_refused(tmp_path: Path) -> None:
    folder, out = tmp_path / "traces", tmp_path / "out"
    with pytest.raises(InputError, match="is no folder"):
        watch(folder, out, once=True)
    folder.mkdir()
    with pytest.raises(InputError, match="inside the watched folder"):
        watch(folder, folder / "out", once=True)
    with pytest.raises(InputError, match="window"):
        watch(folder, out, window_s=0.0, once=True)
    out.mkdir()
    (out / "mine").write_text("")
    with pytest.raises(InputError, match="holds something else"):
        watch(folder, out, once=True)
    (out / "mine").unlink()
    watch(folder, out, window_s=5.0, once=True)
    with pytest.raises(InputError, match="another folder or window"):
        watch(folder, out, window_s=6.0, once=True)
    put(table(Published, []), Published, folder, "1", run="r", strategy="tree")
    with pytest.raises(InputError, match="exists already"):
        put(table(Published, []), Published, folder, "1", run="r", strategy="tree")
