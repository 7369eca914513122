"""What is written reads back the same, garbage is refused and no more, nothing is half-written."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roamcast.errors import FileError
from roamcast.world.contacts import ContactPlan
from roamcast.world.formats import (
    CONTACT_FORMATS,
    MOTION_FORMATS,
    read_contacts,
    read_motion,
    write_contacts,
    write_motion,
)
from roamcast.world.formats.text import seconds_text, time_of
from roamcast.world.trajectory import Motion, Trajectory

DATA = Path(__file__).parents[2] / "data"

# tmp_path is one folder for all examples: each example writes its file anew.
modest = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

ENDS = 50_000_000
metres = st.floats(-5000, 5000).map(lambda value: round(value, 9))
places = st.tuples(metres, metres)


@st.composite
def motions(draw: st.DrawFn) -> Motion:
    """Nodes that are there from 0 to 50 s; some pause (a place drawn twice), some jump in a microsecond."""
    paths = []
    for _ in range(draw(st.integers(1, 4))):
        inner = draw(st.lists(st.integers(1, ENDS - 1), unique=True, max_size=6))
        palette = draw(st.lists(places, min_size=1, max_size=4))
        paths.append(Trajectory.of([(t, *draw(st.sampled_from(palette))) for t in [0, *sorted(inner), ENDS]]))
    return Motion(paths)


@pytest.mark.parametrize(
    ("format", "name"),
    [("ns2", "m.tcl"), ("bonnmotion", "m.movements.gz"), ("csv", "m.csv"), ("ns2", "m.tcl.gz")],
)
@modest
@given(motion=motions())
def test_motion_reads_back_exactly(tmp_path: Path, format: str, name: str, motion: Motion) -> None:
    write_motion(motion, tmp_path / name, format)
    again = read_motion(tmp_path / name)
    assert again.names == [str(node) for node in range(motion.nodes)]
    for before, after in zip(motion.trajectories, again.trajectories, strict=True):
        assert after.times.tolist() == before.times.tolist()
        assert after.x.tolist() == before.x.tolist() and after.y.tolist() == before.y.tolist()
        assert not after.gap.any()
    assert [file.name for file in tmp_path.iterdir()] == [name]


@st.composite
def plans(draw: st.DrawFn, directed: bool) -> ContactPlan:
    nodes = draw(st.integers(2, 5))
    node, time = st.integers(0, nodes - 1), st.integers(0, 10**15)
    rows = draw(st.lists(st.tuples(node, node, time, time), max_size=12))
    return ContactPlan.of(nodes, rows, directed=directed)


def same(a: ContactPlan, b: ContactPlan) -> bool:
    columns = ("sender", "receiver", "start", "end")
    return a.directed == b.directed and all(np.array_equal(getattr(a, c), getattr(b, c)) for c in columns)


@modest
@given(plan=st.booleans().flatmap(lambda directed: plans(directed)))
def test_our_plan_reads_back_exactly(tmp_path: Path, plan: ContactPlan) -> None:
    write_contacts(plan, tmp_path / "p.csv", "plan")
    again, _ = read_contacts(tmp_path / "p.csv")
    assert again.nodes == plan.nodes and same(again, plan)


@modest
@given(plan=plans(directed=False).filter(len))
def test_one_contacts_read_back_under_their_names(tmp_path: Path, plan: ContactPlan) -> None:
    write_contacts(plan, tmp_path / "p.txt", "one")
    again, names = read_contacts(tmp_path / "p.txt")
    number = np.array([int(name) for name in names])
    back = ContactPlan(
        plan.nodes, False, number[again.sender], number[again.receiver], again.start, again.end
    )
    assert same(back, plan)  # names rise with numbers, so the rows' order is kept


@given(st.integers(0, 10**17))
def test_times_survive_their_text(time: int) -> None:
    assert time_of(seconds_text(time), "here") == time


def test_what_a_format_cannot_say_is_refused_and_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "old"
    file.write_text("old")
    late = Motion([Trajectory.of([(1, 0.0, 0.0), (2, 0.0, 0.0)])])
    gone = Trajectory(np.array([0, 9]), np.zeros(2), np.zeros(2), np.array([True]))
    with pytest.raises(FileError, match=r"node 0 is not there all the time from 0 to 0.000002 s"):
        write_motion(late, file, "ns2")
    for format in ("ns2", "bonnmotion", "csv"):
        with pytest.raises(FileError):
            write_motion(Motion([gone]), file, format)
    with pytest.raises(FileError, match="directed"):
        write_contacts(ContactPlan.of(2, [(0, 1, 0, 5)], directed=True), file, "one")
    with pytest.raises(FileError, match="known are bonnmotion, csv, ns2"):
        write_motion(late, file, "gpx")
    with pytest.raises(FileError, match="cannot be written"):
        write_motion(late, tmp_path / "no" / "such", "csv")
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


def test_a_writer_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    from roamcast.world.formats.text import save_lines

    def lines() -> list[str]:
        raise KeyError

    with pytest.raises(KeyError):
        save_lines(tmp_path / "x", (line for _ in range(1) for line in ["a", *lines()]))
    assert list(tmp_path.iterdir()) == []


def test_names_go_through_csv(tmp_path: Path) -> None:
    names = ['a "b"', "cab, 1"]
    write_motion(Motion([Trajectory.of([(0, 1.0, 2.0)])] * 2, names), tmp_path / "n.csv", "csv")
    assert read_motion(tmp_path / "n.csv").names == names


# Garbage: pieces that look almost right, mixed with anything at all
PIECES = st.one_of(
    st.sampled_from(
        [
            *("0", "1", "2", "3", "-1", "20", "1e9", "1e400", "nan", "37.7", "-122.4", "1211439600"),
            *("time", "node", "x", "y", "lat", "lon", "i", "j", "state", "up", "down", "CONN"),
            *("$node_(0)", "$node_(1)", "set", "X_", "Y_", "$ns_", "at", "setdest", "switch", "OFF", "$god_"),
            *("<gpx>", "</gpx>", "<fcd-export>", "<trk>", "<trkpt", "<timestep time='1'>", "&a;"),
            *("<vehicle id='a' x='1' y='2'/>", "#", '"', "'", ",", ";", "\t", "\x00", "é"),
        ]
    ),
    st.text(max_size=5),
)
garbage = st.lists(st.lists(PIECES, max_size=9).map(" ".join), max_size=6).map("\n".join)
mostly_commas = st.lists(st.lists(PIECES, max_size=6).map(",".join), max_size=6).map("\n".join)


@pytest.mark.parametrize("format", [None, *sorted(MOTION_FORMATS)])
@modest
@given(text=garbage | mostly_commas)
def test_garbage_is_motion_or_a_file_error(tmp_path: Path, format: str | None, text: str) -> None:
    file = tmp_path / "garbage"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(FileError):
        assert read_motion(file, format).nodes >= 1


@pytest.mark.parametrize("format", [None, *sorted(CONTACT_FORMATS)])
@modest
@given(text=garbage | mostly_commas)
def test_garbage_is_contacts_or_a_file_error(tmp_path: Path, format: str | None, text: str) -> None:
    file = tmp_path / "garbage"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(FileError):
        assert read_contacts(file, format).plan.nodes >= 0


SAMPLES = sorted(
    file.name
    for file in DATA.iterdir()
    if file.is_file() and file.suffix != ".md" and file.name != "plan.csv"
)


@pytest.mark.parametrize("name", SAMPLES)
@modest
@given(at=st.integers(0, 10_000), junk=st.binary(max_size=3), cut=st.integers(0, 4))
def test_damaged_samples_are_read_or_refused(
    tmp_path: Path, name: str, at: int, junk: bytes, cut: int
) -> None:
    data = (DATA / name).read_bytes()
    at %= len(data)
    (tmp_path / name).write_bytes(data[:at] + junk + data[at + cut :])
    for read in (read_motion, read_contacts):
        with suppress(FileError):
            read(tmp_path / name)
