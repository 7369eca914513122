"""The mesh as the newest traces have it, and as a screen gets it; without Spark."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.lab.live.segments import write_node
from tests.lab.live.test_windows import LATE, WINDOW, extracts, restored

from roamcast.lab.live.board import MeshBoard
from roamcast.lab.live.streaming import WatchedMesh
from roamcast.lab.live.windows import RunWindows
from roamcast.trace import OverlayChanged, Published, Record
from roamcast.units import micros


def change(t: float, node: int, what: str, peer: int | None = None, role: str = "") -> OverlayChanged:
    return OverlayChanged(micros(t), node, what, peer, role)


def position(t: float, node: int, name: str, attributes: dict[str, Any], sequence: int = 1) -> Published:
    text = json.dumps(attributes)
    return Published(
        micros(t), node, sequence, "memorized", micros(900), 9, f"position/{name}", "", text, (), False
    )


def state_of(folder: Path) -> RunWindows:
    state = RunWindows()
    state.take(extracts(folder), WINDOW, LATE)
    return restored(state)


def board_of(state: RunWindows) -> dict[int | str, Any]:
    board = MeshBoard()
    board.on_mesh(WatchedMesh("tree", "r", msgspec.Raw(state.mesh.document().encode())))
    (run,) = json.loads(board.document())["runs"]
    return {node["number"]: node for node in run["nodes"]} | {"is_by_position": run["is_by_position"]}


def test_links_roles_and_ends_are_those_of_the_newest_segments(tmp_path: Path) -> None:
    said: list[Record] = [
        change(1, 0, "neighbour_up", 1),
        change(1, 0, "neighbour_up", 2),
        change(2, 0, "link_up", 1),
        change(3, 0, "role_on", role="leader"),
        change(4, 0, "neighbour_down", 2),
    ]
    write_node(tmp_path, 0, said)
    write_node(tmp_path, 1, [change(1, 1, "neighbour_up", 0)], stop=micros(9))
    write_node(tmp_path, 2, [change(1, 2, "neighbour_up", 0)], boot=1)
    write_node(tmp_path, 2, [change(20, 2, "link_up", 0)], boot=2, began=micros(20))
    mesh = board_of(state_of(tmp_path))
    assert (mesh[0]["name"], mesh[0]["hears"], mesh[0]["links"], mesh[0]["roles"]) == (
        "n0",
        [1],
        [1],
        ["leader"],
    )
    assert (mesh[1]["is_up"], mesh[1]["hears"]) == (False, [])  # stopped in good order
    assert (mesh[2]["hears"], mesh[2]["links"]) == ([], [0])  # began anew
    assert not mesh["is_by_position"] and all(len(mesh[number]["place"]) == 2 for number in range(3))


def test_a_segment_that_comes_late_changes_nothing(tmp_path: Path) -> None:
    write_node(
        tmp_path,
        0,
        [change(1, 0, "neighbour_up", 1), change(20, 0, "neighbour_down", 1)],
        segment_seconds=5.0,
    )
    first, *rest = extracts(tmp_path)
    assert first.overlay and rest  # else this proves nothing
    state = RunWindows()
    state.take(rest, WINDOW, LATE)
    state.take([first], WINDOW, LATE)
    assert state.mesh.nodes[0].hears == []


def test_nodes_stand_where_they_say_and_nonsense_is_passed_over(tmp_path: Path) -> None:
    write_node(tmp_path, 0, [position(1, 0, "n0", {"lat": 47.0, "lon": 8.0})])
    write_node(tmp_path, 1, [position(1, 1, "n1", {"lat": 47.001, "lon": 8.0})])
    nonsense: list[Record] = [
        position(1, 2, "n2", {"lat": 1e300, "lon": "east"}, 1),
        position(2, 2, "n2", {"lat": 95, "lon": 8.0}, 2),
        position(3, 2, "<b>", {"x": True}, 3),
        position(4, 2, "", {}, 4),
    ]
    write_node(tmp_path, 2, nonsense)
    state = state_of(tmp_path)
    mesh = board_of(state)
    assert mesh["is_by_position"] and mesh[2]["place"] is None
    assert mesh[1]["place"][1] - mesh[0]["place"][1] == pytest.approx(
        111.2, abs=0.2
    )  # metres of a thousandth of a degree
