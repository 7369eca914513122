"""The traces of live nodes as one run: its figures, its reasons, and what is said of what is not known."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.lab.live.segments import BEGAN, write_node
from tests.lab.live.test_windows import published, transmitted

from roamcast.cli import app
from roamcast.errors import FileError, InputError
from roamcast.lab.live.collect import collect
from roamcast.lab.live.network import LiveRun, read_network, read_one
from roamcast.lab.why.answer import LossReason
from roamcast.lab.why.inquest import explain
from roamcast.sealing.identity import DERIVED_FROM
from roamcast.trace import Delivered, OverlayChanged, Record, Subscribed, Transmitted
from roamcast.units import MILLISECOND, SECOND, Micros, micros


def carried(t: float, node: int, publisher: int, sequence: int) -> Transmitted:
    return Transmitted(
        micros(t), node, None, "data", "flood", 90, 1, 0, publisher, sequence, True, 0, 0, 0, "strategy"
    )


def neighbours(one: int, other: int, t: float = 0.5) -> Record:
    return OverlayChanged(micros(t), one, "neighbour_up", other)


def two_nodes(folder: Path, numbers: tuple[int, int] = (1, 2), ahead: Micros = 0, **of_bob: Any) -> None:
    """Alice publishes three events; Bob wants two of them and gets the first. And one the other way."""
    alice, bob = numbers
    records: list[Record] = [Subscribed(SECOND, alice, 1, "level > 8", True), neighbours(alice, bob)]
    for sequence, level in enumerate((5, 1, 6), 1):
        records += [published(10.0 * sequence, alice, sequence, level)]
        records += [carried(10.0 * sequence + 0.001, alice, alice, sequence)]
    records.append(Delivered(micros(15.02), alice, bob, 7, 1, True))
    write_node(folder, alice, records, clock="a")
    records = [Subscribed(SECOND, bob, 1, "level > 3", True), neighbours(bob, alice)]
    records += [Delivered(micros(10.02), bob, alice, 1, 1, True), published(15.0, bob, 7, 9)]
    records += [carried(15.001, bob, bob, 7), transmitted(40, bob, "control", 10)]
    write_node(folder, bob, records, clock="b", ahead=ahead, **of_bob)


def reasons(live: LiveRun) -> dict[int, LossReason]:
    found = explain(live.result.tables, live.result.info)
    return {explanation.event.sequence: explanation.reason for explanation in found}


@pytest.mark.parametrize("ahead", [0, 3 * MILLISECOND, 500 * MILLISECOND, -400 * MILLISECOND])
def test_figures_and_reasons_of_two_nodes_by_hand_whatever_their_clocks(
    tmp_path: Path, ahead: Micros
) -> None:
    two_nodes(tmp_path, ahead=ahead)
    live = read_one(str(tmp_path))
    figures = live.result.metrics
    assert (figures["published"], figures["expected"], figures["delivered"]) == (4, 3, 2)
    # 3 ms are within the delays: nothing proves them wrong.
    wrong = ahead / SECOND if abs(ahead) < 20 * MILLISECOND else 0
    assert figures["latency_p50"] == pytest.approx(0.02, abs=1e-5)
    assert figures["latency_p95"] == pytest.approx(0.02 + abs(wrong) * 0.9, abs=1e-4)
    assert (figures["control_messages"], figures["data_messages"]) == (1, 4)
    assert figures["reachable_ratio"] is None and figures["noise"] is None
    assert reasons(live) == {
        3: LossReason.UNKNOWN
    }  # sent over a link that stood: no node saw what became of it
    assert any("clock" in remark for remark in live.remarks) == (abs(ahead) > 20 * MILLISECOND)
    assert abs(live.began - BEGAN) <= max(0, -ahead)


def test_without_neighbours_no_path_is_claimed_or_denied(tmp_path: Path) -> None:
    write_node(tmp_path, 1, [published(10, 1, 1, 5), carried(10.001, 1, 1, 1), transmitted(20, 1, "data", 9)])
    write_node(tmp_path, 2, [Subscribed(SECOND, 2, 1, "level > 3", True), transmitted(20, 2, "data", 9)])
    (found,) = explain(*(lambda result: (result.tables, result.info))(read_one(str(tmp_path)).result))
    assert found.reason is LossReason.UNKNOWN and "told its neighbours" in found.detail


def test_numbers_that_follow_from_keys_are_replaced_and_told(tmp_path: Path) -> None:
    two_nodes(tmp_path, (2_000_000_001, 1_999_999_999))
    live = read_one(str(tmp_path))
    assert live.result.metrics["delivered"] == 2
    assert live.names == {
        DERIVED_FROM: "n1999999999",
        DERIVED_FROM + 1: "n2000000001",
    }
    assert reasons(live) == {3: LossReason.UNKNOWN}


def test_why_takes_what_publish_printed_and_speaks_of_nodes_by_name(tmp_path: Path) -> None:
    alice, bob = 2_000_000_001, 1_999_999_999
    two_nodes(tmp_path, (alice, bob))
    sequences = [row["sequence"] for row in read_one(str(tmp_path)).result.tables["publications"].to_pylist()]

    def why(event: str) -> Result:
        return CliRunner().invoke(app, ["why", str(tmp_path), "--event", event])

    for publisher in (str(alice), f"n{alice}", str(DERIVED_FROM + 1)):
        told = why(f"{publisher}:{sequences[0]}")
        assert told.exit_code == 0, told.output
        assert f"n{bob} ({bob})" in told.stdout and str(DERIVED_FROM) not in told.stdout, told.stdout
    for written in (f"{alice}:999", f"n{alice}:999"):
        unknown = why(written)
        assert unknown.exit_code == 1
        assert f"event {written}: was not published in this run" in unknown.stderr
    misspelt = why(f"n{alice}0:1")
    assert misspelt.exit_code == 2 and f"did you mean `n{alice}`?" in misspelt.stderr


def test_a_node_that_was_down_is_the_reason(tmp_path: Path) -> None:
    alice: list[Record] = [neighbours(1, 2), published(10, 1, 1, 5), carried(10.001, 1, 1, 1)]
    alice += [published(30, 1, 2, 5), carried(30.001, 1, 1, 2), transmitted(60, 1, "data", 9)]
    write_node(tmp_path, 1, alice)
    bob = [Subscribed(SECOND, 2, 1, "level > 3", True), neighbours(2, 1)]
    write_node(tmp_path, 2, bob, stop=5 * SECOND)  # stopped: nothing is expected of him any more
    live = read_one(str(tmp_path))
    assert live.result.metrics["expected"] == 0
    # Killed instead, and back at 50 s: what came meanwhile was expected.
    for path in tmp_path.glob("*-2-*.trace"):
        path.write_bytes(path.read_bytes().replace(b'"why":"stopped"', b'"why":"cut"'))
    write_node(tmp_path, 2, [transmitted(51, 2, "data", 9)], boot=2, began=50 * SECOND)
    live = read_one(str(tmp_path))
    assert live.result.metrics["expected"] == 2
    assert set(reasons(live).values()) == {LossReason.SUBSCRIBER_CRASHED}


def test_what_is_missing_or_damaged_is_said(tmp_path: Path) -> None:
    two_nodes(tmp_path)
    first, second, third, *_ = sorted(tmp_path.glob("*-1-*.trace"))
    second.unlink()
    third.write_bytes(third.read_bytes()[:-9])
    live = read_one(str(tmp_path))
    assert live.is_damaged
    assert any(f"not read: {third}: is cut short" in remark for remark in live.remarks)
    assert any("node 1: 2 segments of boot 1 are missing" in remark for remark in live.remarks)
    for path in tmp_path.glob("*-2-*.trace"):
        path.unlink()
    assert first.exists()
    with pytest.raises(FileError, match="no whole segment of the run 'other'"):
        read_one(str(tmp_path), "other")


def test_runs_of_one_folder_are_told_apart(tmp_path: Path) -> None:
    write_node(tmp_path, 1, [published(1, 1, 1, 1)], run="a", boot=1)
    write_node(tmp_path, 1, [published(1, 1, 1, 1), published(2, 1, 2, 1)], run="b", boot=2)
    assert [live.result.metrics["published"] for live in read_network(str(tmp_path))] == [1, 2]
    with pytest.raises(InputError, match="--run with one of a, b"):
        read_one(str(tmp_path))
    assert read_one(str(tmp_path), "b").result.metrics["published"] == 2


def test_collecting_copies_whole_segments_once(tmp_path: Path) -> None:
    one, two, into = tmp_path / "one", tmp_path / "two", tmp_path / "into"
    for folder, node in ((one, 1), (two, 2)):
        folder.mkdir()
        write_node(folder, node, [transmitted(1 + 10 * i, node, "data", 9) for i in range(3)])
    damaged = sorted(one.glob("*.trace"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    (one / "0000000000-1-0000000001-00000009.trace.partial").write_text("still being written")
    found = collect([str(one), str(two)], str(into))
    assert (found.copied, found.there_before) == (5, 0)
    assert [line.split(": ")[1] for line in found.refused] == [
        "is cut short; expected a segment of a trace, with its head and its end"
    ]
    again = collect([str(one), str(two)], str(into))
    assert (again.copied, again.there_before) == (0, 5)
    assert len(list(into.iterdir())) == 5
    with pytest.raises(InputError, match="is the target itself"):
        collect([str(into)], str(into))
    with pytest.raises(FileError, match="is no folder"):
        collect([str(tmp_path / "none")], str(into))
