"""The page of a run holds what its tables hold, cut and thinned as it says, and nothing that can break it."""

import base64
import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.lab.live.segments import write_node

from roamcast.errors import FileError, InputError
from roamcast.event import EventId
from roamcast.lab.play import PlayedRun, Selection, events, play, started_at
from roamcast.lab.play.packing import Columns
from roamcast.lab.play.page import WHOLE, content
from roamcast.lab.play.source import open_run
from roamcast.lab.run.runs import RunResult, simulate
from roamcast.lab.run.tables import EventLimit, records
from roamcast.lab.sweep.experiment import experiment_from
from roamcast.lab.sweep.folder import RunRecord, SweepFolder
from roamcast.lab.why import inquest
from roamcast.scenario import scenario_from
from roamcast.trace import Delivered, OverlayChanged, Published, Subscribed, Transmitted

TYPES = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "f4": "<f4"}
HOSTILE = '</script><img src=x onerror=alert(1)>"&'
CROWD: dict[str, Any] = {
    "scenario": {"name": HOSTILE, "duration": 20.0, "warmup": 2.0},
    "world": {
        "nodes": 15,
        "area": [400.0, 300.0],
        "range": 130.0,
        "mobility": {"model": "random_waypoint", "speed": [5.0, 9.0], "pause": [0.0, 1.0]},
        "radio": {"model": "csma"},
    },
    "roles": {"publishers": 6, "subscribers": "all"},
    "workload": {"rate": 2.0},
    "strategy": {"name": "flooding"},
    "fault": [
        {"at": 6.0, "kind": "crash", "nodes": [3]},
        {"at": 11.0, "kind": "restart", "nodes": [3]},
        {"at": 13.0, "kind": "crash", "nodes": [5, 6, 7, 8, 9, 10]},
    ],
}


@pytest.fixture(scope="module")
def crowd() -> RunResult:
    return simulate(scenario_from(CROWD))


def unpacked(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `pages/unpack.js` does, written again from the description in `packing.py`."""
    data = gzip.decompress(base64.b64decode(text))
    size = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + size])
    base = -(-(4 + size) // 8) * 8
    columns = {}
    for entry in head["columns"]:
        kind = TYPES[entry["type"]]
        column = np.frombuffer(data, kind, entry["length"], base + entry["offset"])
        columns[entry["name"]] = np.cumsum(column, dtype=np.int64) if entry["delta"] else column
    return head, columns


def played(result: RunResult, selection: Selection = WHOLE) -> tuple[dict[str, Any], dict[str, Any]]:
    return unpacked(content(PlayedRun(result.info, result.tables), selection))


def test_columns_come_back_as_they_were_packed() -> None:
    packed = Columns()
    whole = {"none": [], "one": [7], "small": [3, 1, 255], "times": [1, 1, 70_000, 2**32 - 1]}
    packed.whole("whole", whole)
    packed.real("real", {"values": [0.5, -1.25]})
    head, columns = unpacked(packed.packed({"texts": ["é"]}))
    assert head["texts"] == ["é"]
    found = {name: column.tolist() for name, column in columns.items()}
    assert found == {f"whole.{name}": values for name, values in whole.items()} | {
        "real.values": [0.5, -1.25]
    }


def test_every_event_has_the_deliveries_and_reasons_that_the_lab_found(crowd: RunResult) -> None:
    head, columns = played(crowd)
    explanations = inquest.examine(crowd.tables, crowd.info).explanations
    assert len(explanations) > 20 and len({e.reason for e in explanations}) > 2
    found = [
        (
            int(columns["event.publisher"][e]),
            int(columns["event.sequence"][e]),
            int(columns["miss.node"][k]),
            head["reasons"][columns["miss.reason"][k]],
            int(columns["miss.t"][k]),
            head["texts"][columns["miss.detail"][k]],
        )
        for e in range(len(columns["event.t"]))
        for k in range(columns["miss.first"][e], columns["miss.first"][e + 1])
    ]
    assert sorted(found) == sorted((*e.event, e.node, e.reason.value, e.t, e.detail) for e in explanations)
    measured = crowd.metrics["delivered"]
    after_warmup = columns["event.t"] >= 2_000_000
    delivered = np.diff(columns["got.first"])
    assert delivered[after_warmup].sum() == measured
    assert sum(head["series"]["delivered"]) == delivered.sum()
    assert len(columns["frame.t"]) == len(crowd.tables["transmissions"])


def test_the_way_to_each_node_is_that_of_why(crowd: RunResult) -> None:
    _, columns = played(crowd)
    for e in range(0, len(columns["event.t"]), 17):
        event = EventId(int(columns["event.publisher"][e]), int(columns["event.sequence"][e]))
        span = slice(columns["held.first"][e], columns["held.first"][e + 1])
        givers = dict(
            zip(columns["held.node"][span].tolist(), columns["held.giver"][span].tolist(), strict=True)
        )
        for way in inquest.ways(crowd.tables, event):
            path = [way.node]
            while path[-1] in givers:
                path.append(givers[path[-1]])
            assert tuple(reversed(path)) == way.path


def test_sampled_events_have_their_best_possible_tree(crowd: RunResult) -> None:
    limits = {
        (row.publisher, row.sequence): row.at_most
        for row in records(crowd.tables, EventLimit)
        if row.fewest is not None
    }
    event = next(
        EventId(p.publisher, p.sequence)
        for p in records(crowd.tables, Published)
        if (p.publisher, p.sequence) not in limits
    )
    for wanted, more in ((None, 0), (event, 1)):
        _, columns = played(crowd, Selection(event=wanted))
        served = 0
        for e, first in enumerate(columns["best.first"][:-1]):
            span = slice(first, columns["best.first"][e + 1])
            hops = list(
                zip(columns["best.sender"][span].tolist(), columns["best.t"][span].tolist(), strict=True)
            )
            key = (columns["event.publisher"][e], columns["event.sequence"][e])
            assert len(set(hops)) == limits.get(key, len(set(hops)))
            got = slice(columns["got.first"][e], columns["got.first"][e + 1])
            assert not hops or set(columns["got.node"][got]) <= {*columns["best.node"][span], key[0]}
            served += bool(hops)
        assert served == len([count for count in limits.values() if count]) + more


def test_a_part_of_a_run_has_its_own_clock_and_says_so(crowd: RunResult) -> None:
    head, columns = played(crowd, Selection(5.0, 8.0))
    assert (head["begin"], head["end"]) == (5_000_000, 8_000_000)
    assert columns["frame.t"].max() <= 3_000_000 and "Shown are 5 s to 8 s of 20 s." in head["notes"]
    assert head["faults"] == [[1_000_000, "crash", 3, None]]
    with pytest.raises(InputError, match="allowed: a part of 0 to 20 s"):
        played(crowd, Selection(30.0, 40.0))


def test_what_is_left_out_is_said_and_the_curves_still_count_it(
    crowd: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, everything = played(crowd)
    monkeypatch.setattr(events, "PAIRS_MAX", 200)
    monkeypatch.setattr(events, "FRAMES_MAX", 300)
    kept = EventId(int(everything["event.publisher"][1]), int(everything["event.sequence"][1]))
    head, columns = played(crowd, Selection(event=kept))
    assert len(columns["event.t"]) < len(everything["event.t"]) / 4 and len(columns["frame.t"]) <= 300
    assert sum("Left out" in note for note in head["notes"]) == 2
    assert head["series"] == whole["series"]
    assert kept in list(
        zip(columns["event.publisher"].tolist(), columns["event.sequence"].tolist(), strict=True)
    )


def test_names_with_markup_stay_text(crowd: RunResult, tmp_path: Path) -> None:
    page = Path(play([PlayedRun(crowd.info, crowd.tables)], tmp_path / "page.html")).read_text()
    assert HOSTILE not in page and "<img" not in page
    assert page.count("</script") == 2, "the run and the script, no more"


def test_the_same_run_gives_the_same_bytes(crowd: RunResult, tmp_path: Path) -> None:
    run = PlayedRun(crowd.info, crowd.tables)
    one, other = (Path(play([run], tmp_path / f"{n}.html")).read_bytes() for n in range(2))
    assert one == other


def test_without_positions_nodes_are_laid_out_by_their_links_the_same_each_time(tmp_path: Path) -> None:
    rows = [(i, i + 1) for i in range(5)]
    plan = "".join(f"0.0,{a},{b},up\n9.0,{a},{b},down\n" for a, b in rows)
    (tmp_path / "plan.csv").write_text(plan)
    tables = {
        "scenario": {"name": "line", "duration": 10.0},
        "world": {"contacts": "plan.csv"},
        "workload": {"publications": [{"t": 1.0, "node": 0}]},
        "strategy": {"name": "flooding"},
    }
    result = simulate(scenario_from(tables, base=tmp_path))
    head, columns = played(result)
    assert head["laidOut"] and "no positions" in head["notes"][0]
    place = np.stack([columns["knot.x"], columns["knot.y"]], axis=1)
    near = np.linalg.norm(place[:-1] - place[1:], axis=1)
    assert near.max() < np.linalg.norm(place[0] - place[5]), "neighbours are nearer than the ends of the line"
    again = played(result)[1]
    assert np.array_equal(columns["knot.x"], again["knot.x"])


def test_a_run_without_events_and_frames_has_a_page(tmp_path: Path) -> None:
    tables = CROWD | {"workload": {"publications": []}, "roles": {"publishers": 0}, "fault": []}
    head, columns = played(simulate(scenario_from(tables)))
    assert len(columns["event.t"]) == 0 and head["series"]["delivered"] == [0] * 200


@pytest.mark.long
def test_two_thousand_nodes_make_a_page_of_bounded_size() -> None:
    world = {"nodes": 2000, "area": [6000.0, 6000.0], "range": 250.0}
    world["mobility"] = {"model": "random_waypoint", "speed": [5.0, 9.0]}
    tables = {
        "scenario": {"name": "many", "duration": 2.0},
        "world": world,
        "workload": {"publications": [{"t": 1.0, "node": 0}]},
        "strategy": {"name": "flooding"},
    }
    result = simulate(scenario_from(tables))
    began = time.process_time()
    text = content(PlayedRun(result.info, result.tables))
    assert len(text) < 10_000_000
    assert time.process_time() - began < 30
    assert len(unpacked(text)[0]["labels"]) == 2000


def test_a_sweep_gives_the_run_that_was_asked_for(tmp_path: Path) -> None:
    quick = CROWD | {"scenario": {"name": "s", "duration": 3.0}, "fault": []}
    experiment = experiment_from("e", quick, {"world.range": [80.0, 130.0]}, replications=1)
    folder = SweepFolder(tmp_path)
    folder.check(experiment, resume=False)
    folder.claim(experiment)
    done = []
    for plan in experiment.runs():
        result = simulate(experiment.scenario(plan))
        rows = {name: len(table) for name, table in result.tables.items() if len(table)}
        record = RunRecord(run=plan.run, status="ok", seconds=1.0, attempt=1, info=result.info, rows=rows)
        done.append((record, result.tables))
    folder.commit(done, ())
    run = open_run(str(tmp_path), "0001-1")
    assert run.info.scenario["world"]["range"] == 130.0
    assert run.tables["publications"] == done[1][1]["publications"]
    assert run.tables["motion"] == done[1][1]["motion"]
    assert open_run(str(tmp_path)).info.scenario["world"]["range"] == 80.0
    with pytest.raises(InputError, match="run 0007"):
        open_run(str(tmp_path), "0007")


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path, crowd: RunResult) -> None:
    with pytest.raises(FileError, match="is no folder; allowed"):
        open_run(str(tmp_path / "absent"))
    with pytest.raises(FileError, match="holds no run; allowed"):
        open_run(str(tmp_path))
    crowd.write(tmp_path / "run")
    (tmp_path / "run" / "transmissions.parquet").write_bytes(b"PAR1")
    with pytest.raises(FileError, match=r"transmissions\.parquet: is no Parquet file"):
        open_run(str(tmp_path / "run"))
    run = PlayedRun(crowd.info, crowd.tables)
    with pytest.raises(InputError, match="event 1:999: was not published"):
        started_at([run], EventId(1, 999), None)
    with pytest.raises(InputError, match="node 99: is not in this run"):
        started_at([run], None, 99)
    first = next(iter(crowd.tables[Published.TABLE].to_pylist()))
    named = EventId(first["publisher"], first["sequence"])
    assert started_at([run], named, 3) == f"event={named.publisher}:{named.sequence}&node=3"


def test_a_large_payload_is_its_first_chunk_and_our_own_attributes_are_not_shown(tmp_path: Path) -> None:
    attributes = [f'{{"level":5,"mqtt":1,"mqtt.at":7,"roamcast.chunk":{index}}}' for index in range(3)]
    large = [
        Published(2_000_000, 1, index, "memorized", 60, 5, "maps/a", "", text, (), False)
        for index, text in enumerate(attributes)
    ]
    write_node(tmp_path, 1, large, stop=9_000_000)
    head, columns = unpacked(content(open_run(str(tmp_path))))
    assert columns["event.chunk"].tolist() == [0, 1, 1]
    assert {head["texts"][text] for text in columns["event.text"]} == {'maps/a {"level":5}'}


def test_a_live_trace_that_was_cut_off_plays_with_what_there_is(tmp_path: Path) -> None:
    """Two nodes of a line of three; one is cut off, of the third there is no trace; a name is markup."""
    second = 1_000_000
    heard = [OverlayChanged(0, 1, "neighbour_up", 2), OverlayChanged(0, 2, "neighbour_up", 1)]
    published = Published(2 * second, 1, 0, "realtime", 0, 5, HOSTILE, "", "{}", (), False)
    sent = Transmitted(2 * second, 1, None, "data", "flood", 40, 1, 0, 1, 0, True, 0, 0, 0)
    wants = Subscribed(second, 2, 0, "TRUE", True)
    got = Delivered(2 * second + 5_000, 2, 1, 0, 1, True)
    write_node(tmp_path, 1, [heard[0], published, sent], stop=9 * second)
    write_node(tmp_path, 2, [heard[1], wants, got])
    run = open_run(str(tmp_path))
    head, columns = unpacked(content(run))
    assert head["labels"] == ["n1", "n2"] and head["runtime"] == "live" and head["laidOut"]
    assert columns["got.node"].tolist() == [1] and head["texts"][columns["event.text"][0]] == HOSTILE
    assert any("links are what the nodes' underlays said" in note for note in head["notes"])
    assert HOSTILE not in Path(play([run], tmp_path / "page.html")).read_text()
