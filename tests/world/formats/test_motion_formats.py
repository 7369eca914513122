"""Recorded paths: each format against trajectories worked out by hand, and against what must be refused."""

import gzip
import math
import tarfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from roamcast.errors import FileError, InputError
from roamcast.units import SECOND
from roamcast.world.formats import MOTION_FORMATS, MapProjection, read_motion
from roamcast.world.formats.motion_xml import elements
from roamcast.world.trajectory import Motion, Trajectory

DATA = Path(__file__).parents[2] / "data"

Knots = list[tuple[float, float, float]]


def knots(path: Trajectory) -> Knots:
    """`(seconds, x, y)`, rounded to what a hand computes."""
    rows = zip(path.times.tolist(), path.x.tolist(), path.y.tolist(), strict=True)
    return [(time / SECOND, round(x, 6), round(y, 6)) for time, x, y in rows]


def gaps(path: Trajectory) -> list[bool]:
    return [bool(gap) for gap in path.gap]


def read_text(tmp_path: Path, text: str | bytes, name: str = "file", format: str | None = None) -> Motion:
    file = tmp_path / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_motion(file, format)


# ns-2


def test_ns2_nodes_wait_walk_stop_and_are_overridden() -> None:
    motion = read_motion(DATA / "sample.ns_movements")
    assert motion.names == ["0", "1", "2", "3"]
    # Node 0: 50 m at 5 m/s from t = 10; 40 m at 10 m/s from t = 30.5, where all motion ends (34.5).
    assert knots(motion.trajectories[0]) == [
        (0, 0, 0),
        (10, 0, 0),
        (20, 30, 40),
        (30.5, 30, 40),
        (34.5, 30, 0),
    ]
    # Node 1: overridden at t = 4 at (140, 50); stopped at t = 6 after 40 m northwards.
    assert knots(motion.trajectories[1]) == [(0, 100, 50), (4, 140, 50), (6, 140, 90), (34.5, 140, 90)]
    assert knots(motion.trajectories[2]) == [(0, 10, 20), (34.5, 10, 20)]  # never moves


def test_ns2_switches_are_presence() -> None:
    path = read_motion(DATA / "sample.ns_movements").trajectories[3]
    # On at 20.01 s at (1000, 0), where 10⁹ m/s brought it within 1 µs; off at 23.01 s after 60 m.
    assert knots(path) == [(20.01, 1000, 0), (23.01, 1000, 60)]


def test_ns2_nodes_stay_until_the_duration() -> None:
    motion = read_motion(DATA / "sample.ns_movements", duration=100.0)
    assert knots(motion.trajectories[2])[-1] == (100, 10, 20)
    assert motion.ends == 100 * SECOND
    shorter = read_motion(DATA / "sample.ns_movements", duration=1.0)
    assert shorter.ends == 34_500_000  # motion is never cut


def test_ns2_a_car_that_is_switched_off_and_on_again_leaves_a_gap(tmp_path: Path) -> None:
    motion = read_text(
        tmp_path,
        "$node_(4) set X_ 0\n$node_(4) set Y_ 0\n"
        '$ns_ at 0 "$node_(4) setdest 100 0 10"\n'
        '$ns_ at 6 "$node_(4) switch ON"\n$ns_ at 2 "$node_(4) switch OFF"\n',
        "a.tcl",
    )
    assert motion.names == ["4"]
    path = motion.trajectories[0]
    assert knots(path) == [(0, 0, 0), (2, 20, 0), (6, 60, 0), (10, 100, 0)]
    assert gaps(path) == [False, True, False]
    assert path.position(4 * SECOND) is None and path.position(8 * SECOND) == (80.0, 0.0)


def test_ns2_a_set_at_a_time_is_a_jump(tmp_path: Path) -> None:
    motion = read_text(
        tmp_path,
        "$node_(0) set X_ 0\n$node_(0) set Y_ 0\n"
        '$ns_ at 0 "$node_(0) setdest 100 0 10"\n'
        '$ns_ at 2 "$node_(0) set X_ 500"\n$ns_ at 2 "$node_(0) set Y_ 7"\n'
        '$ns_ at 2 "$node_(0) setdest 500 17 10"\n',
        "a.tcl",
    )
    path = motion.trajectories[0]
    assert [time for time, _, _ in knots(path)] == [0, 1.999999, 2, 3]
    assert path.position(1_999_999) == pytest.approx((20, 0), abs=1e-4)
    assert path.position(2 * SECOND) == (500, 7)
    assert path.position(3 * SECOND) == (500, 17)


def test_ns2_orders_of_one_instant_run_in_file_order(tmp_path: Path) -> None:
    head = "$node_(0) set X_ 0\n$node_(0) set Y_ 0\n"
    first, second = (f'$ns_ at 1 "$node_(0) setdest {goal} 1"\n' for goal in ("10 0", "0 20"))
    assert knots(read_text(tmp_path, head + first + second, "a.tcl").trajectories[0])[-1] == (21, 0, 20)
    assert knots(read_text(tmp_path, head + second + first, "a.tcl").trajectories[0])[-1] == (11, 10, 0)


def test_ns2_orders_may_stand_in_any_order_of_time(tmp_path: Path) -> None:
    head = "$node_(0) set X_ 0\n$node_(0) set Y_ 0\n"
    early, late = (
        f'$ns_ at {goal} 1"\n' for goal in ('1 "$node_(0) setdest 10 0', '6 "$node_(0) setdest 5 20')
    )
    expected = [(0, 0, 0), (1, 0, 0), (6, 5, 0), (26, 5, 20)]
    assert knots(read_text(tmp_path, head + early + late, "a.tcl").trajectories[0]) == expected
    assert knots(read_text(tmp_path, late + early + head, "a.tcl").trajectories[0]) == expected


def test_ns2_positions_are_within_a_microsecond_of_motion(tmp_path: Path) -> None:
    """Sampled against the definition: origin + direction × speed × time, in plain floats."""
    text = (
        '$node_(0) set X_ 3.3\n$node_(0) set Y_ 1.7\n$ns_ at 0.1234567 "$node_(0) setdest 77.7 31.9 33.3"\n'
    )
    path = read_text(tmp_path, text, "a.tcl").trajectories[0]
    length = math.hypot(74.4, 30.2)
    for time in range(200_000, 2_400_000, 98_765):
        along = min(length, 33.3 * (time / 1e6 - 0.1234567))
        expected = 3.3 + 74.4 * along / length, 1.7 + 30.2 * along / length
        assert path.position(time) == pytest.approx(expected, abs=33.3e-6)


# BonnMotion, ONE, CSV


def test_bonnmotion_lines_are_nodes_in_order(tmp_path: Path) -> None:
    motion = read_motion(DATA / "sample.movements")
    assert motion.names == ["0", "1"]
    assert knots(motion.trajectories[0]) == [(0, 10, 10), (4.5, 10, 10), (10.25, 20, 30)]
    assert knots(motion.trajectories[1]) == [(0, 0, 0), (100, 50, 0)]
    packed = tmp_path / "x.movements.gz"
    packed.write_bytes(gzip.compress((DATA / "sample.movements").read_bytes()))
    assert knots(read_motion(packed).trajectories[0]) == knots(motion.trajectories[0])


def test_one_movement_keeps_the_last_place_of_an_instant() -> None:
    motion = read_motion(DATA / "sample-one-movement.txt")
    assert motion.names == ["2", "10"]  # by value, not as text
    assert knots(motion.trajectories[0]) == [(1000, 10, 10), (1010, 30, 10), (1020, 30, 20)]
    assert knots(motion.trajectories[1]) == [(1000, 50, 50), (1020, 50, 60)]
    with pytest.raises(
        FileError, match=r"one-movement.txt:5: node 2 is at two places at 1010 s \(see line 4\)"
    ):
        read_motion(DATA / "sample-one-movement.txt", conflict="error")


def test_csv_takes_columns_and_rows_in_any_order() -> None:
    motion = read_motion(DATA / "sample.csv")
    assert motion.names == ["a", "b"]
    assert knots(motion.trajectories[0]) == [(0.000001, 1, -1), (20, 5.5, -1)]
    assert knots(motion.trajectories[1]) == [(0, 0, 0), (10, 3, 4)]


def test_fixes_too_far_apart_leave_a_gap() -> None:
    assert gaps(read_motion(DATA / "sample.csv", max_gap=10.0).trajectories[1]) == [False]  # 10 s is not more
    path = read_motion(DATA / "sample.csv", max_gap=9.999999).trajectories[1]
    assert gaps(path) == [True]
    assert path.position(5 * SECOND) is None


def test_the_same_row_twice_is_one_fix(tmp_path: Path) -> None:
    motion = read_text(tmp_path, "node,time,x,y\na,1,2,3\na,1,2.0,3\n", "a.csv")
    assert knots(motion.trajectories[0]) == [(1, 2, 3)]


def test_csv_with_a_byte_order_mark_crlf_and_quotes(tmp_path: Path) -> None:
    motion = read_text(tmp_path, b'\xef\xbb\xbfnode,time,x,y\r\n"cab, 1",1,2,3\r\n\r\n', "a.csv")
    assert motion.names == ["cab, 1"]


# Geographic formats


@pytest.mark.parametrize(
    ("latitude", "north_m", "east_m"),
    # Lengths of one degree on WGS 84, from the tables in "Length of a degree" (NGA / Wikipedia).
    [(0.0, 110_574, 111_320), (15.0, 110_649, 107_550), (45.0, 111_132, 78_847), (60.0, 111_412, 55_800)],
)
def test_a_degree_is_as_long_as_on_the_ellipsoid(latitude: float, north_m: float, east_m: float) -> None:
    origin = MapProjection(latitude, 20.0)
    small = 1e-4  # published per degree; locally linear
    x, y = origin.to_metres(np.array([latitude + small, latitude]), np.array([20.0, 20.0 + small]))
    assert y[0] / small == pytest.approx(north_m, abs=1.0) and x[0] == 0
    assert x[1] / small == pytest.approx(east_m, abs=1.0) and y[1] == 0


def test_a_track_may_cross_the_date_line(tmp_path: Path) -> None:
    path = read_text(tmp_path, "node,time,lat,lon\na,0,0,179.9995\na,9,0,-179.9995\n", "a.csv").trajectories[
        0
    ]
    assert path.x.tolist() == pytest.approx([-55.66, 55.66], abs=0.01)


def test_geographic_csv_is_projected_around_the_mean_or_a_given_origin() -> None:
    mean = read_motion(DATA / "sample-geographic.csv")
    assert sum(float(path.x.sum()) for path in mean.trajectories) == pytest.approx(0, abs=1e-6)
    given = read_motion(DATA / "sample-geographic.csv", origin=(48.0, 11.0))
    assert knots(given.trajectories[0])[0] == (0, 0, 0)
    assert given.trajectories[0].y[1] == pytest.approx(111.2, abs=0.05)
    assert given.trajectories[1].x[0] == pytest.approx(74.6, abs=0.05)


def test_cabs_are_turned_round_and_parked_ones_are_absent(tmp_path: Path) -> None:
    motion = read_motion(DATA / "cabs")
    assert motion.names == ["new_abboip", "new_erulghiv", "new_udwadla"]
    for name, path in zip(motion.names, motion.trajectories, strict=True):
        rows = [line.split() for line in (DATA / "cabs" / f"{name}.txt").read_text().splitlines()]
        assert [int(row[3]) * SECOND for row in reversed(rows)] == path.times.tolist()
        late = [int(b[3]) - int(a[3]) > 300 for a, b in zip(rows[1:], rows, strict=False)]
        assert late[::-1] == gaps(path)
    assert any(any(gaps(path)) for path in motion.trajectories)  # else the line above proves little
    assert not any(any(gaps(path)) for path in read_motion(DATA / "cabs", max_gap=math.inf).trajectories)


def test_a_cab_is_absent_after_five_silent_minutes(tmp_path: Path) -> None:
    path = read_text(tmp_path, "37 -122 0 901\n37 -122 1 600\n37 -122 1 300\n", "c.txt").trajectories[0]
    assert path.times.tolist() == [300 * SECOND, 600 * SECOND, 901 * SECOND] and gaps(path) == [False, True]


def test_cabs_from_an_archive_are_those_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "_cabs.txt").write_text("<cab id='x'/>\n")
    archive = tmp_path / "cabs.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "_cabs.txt", "_cabs.txt")
        tar.add(DATA / "cabs", "some/folder")
    packed, plain = read_motion(archive), read_motion(DATA / "cabs")
    assert packed.names == plain.names
    for a, b in zip(packed.trajectories, plain.trajectories, strict=True):
        assert a.times.tolist() == b.times.tolist() and a.x.tolist() == b.x.tolist()
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(FileError, match="damaged or truncated"):
        read_motion(cut)


def test_gpx_segments_are_stretches_and_tracks_are_nodes(tmp_path: Path) -> None:
    motion = read_motion(DATA / "sample.gpx", origin=(48.0, 11.0))
    assert motion.names == ["sample", "sample#2"]
    new_year = 1_767_225_600
    walk = motion.trajectories[0]
    assert walk.times.tolist() == [
        (new_year + 10) * SECOND,
        new_year * SECOND + 20_500_000,
        (new_year + 60) * SECOND,
    ]
    assert gaps(walk) == [False, True]
    assert walk.y.tolist() == pytest.approx([0, 111.2, 222.4], abs=0.1)
    assert motion.trajectories[1].times.tolist() == [new_year * SECOND]
    (tmp_path / "a.gpx").write_bytes((DATA / "sample.gpx").read_bytes())
    (tmp_path / "b.gpx").write_bytes((DATA / "sample.gpx").read_bytes())
    assert read_motion(tmp_path).names == ["a", "a#2", "b", "b#2"]


def test_fcd_vehicles_that_come_back_have_a_gap() -> None:
    motion = read_motion(DATA / "sample-fcd.xml")
    assert motion.names == ["bus.1", "car.7"]
    bus, car = motion.trajectories
    assert knots(bus) == [(0, 0, 0), (1, 10, 0), (2, 20, 0), (3, 30, 0)] and gaps(bus) == [False] * 3
    assert knots(car) == [(1, 5, 5), (3, 5, 11)] and gaps(car) == [True]


def test_fcd_may_be_geographic_and_gzipped(tmp_path: Path) -> None:
    text = '<fcd-export><timestep time="0"><vehicle id="a" x="11.001" y="48"/></timestep></fcd-export>'
    file = tmp_path / "fcd.xml.gz"
    file.write_bytes(gzip.compress(text.encode()))
    path = read_motion(file, geographic=True, origin=(48.0, 11.0)).trajectories[0]
    assert path.x[0] == pytest.approx(74.6, abs=0.05)


def test_xml_that_has_been_read_is_dropped() -> None:
    text = (
        "<fcd-export>"
        + '<timestep time="1"><person/><person/></timestep>\n<!-- x -->' * 5000
        + "</fcd-export>"
    )
    stream = BytesIO(text.encode())
    root, ends, kept_max, steps = None, 0, 0, []
    for event, _, element in elements(stream, "here", root="fcd-export"):
        root = element if root is None else root
        ends += event == "end"
        # The parser reads ahead by one block of 64 KiB: what lies before the element in hand must be gone.
        kept_max = max(kept_max, sum(1 for _ in element.itersiblings(preceding=True)))
        steps.append(len(root))
    assert ends == 15_001  # else nothing was read
    assert kept_max <= 1 and max(steps) < 1500  # of 5000 steps


def test_a_namespace_that_closes_a_brace_is_refused_like_any_damage(tmp_path: Path) -> None:
    """Found by fuzzing: lxml's own QName refuses it with a ValueError."""
    text = (DATA / "sample.gpx").read_bytes().replace(b'xmlns="', b'xmlns="}')
    with pytest.raises(FileError, match=r":2: .*is not a valid URI"):
        read_text(tmp_path, text, format="gpx")


# Guessing


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("sample.ns_movements", "ns2"),
        ("sample.movements", "bonnmotion"),
        ("sample-one-movement.txt", "one"),
        ("sample-fcd.xml", "fcd"),
        ("sample.csv", "csv"),
        ("sample.gpx", "gpx"),
        ("cabs/new_abboip.txt", "cabs"),
    ],
)
def test_the_format_is_told_by_the_content_alone(tmp_path: Path, name: str, format: str) -> None:
    plain = tmp_path / "unnamed"
    plain.write_bytes((DATA / name).read_bytes())
    guessed, stated = read_motion(plain), read_motion(DATA / name, format)
    assert [p.times.tolist() for p in guessed.trajectories] == [p.times.tolist() for p in stated.trajectories]


def test_what_cannot_be_told_lists_the_formats(tmp_path: Path) -> None:
    for text in ("", "hello world\n", "1 2 3 4 5 6\n", "a,b\n1,2\n", "<html/>"):
        with pytest.raises(FileError, match="state one of bonnmotion, cabs, csv, fcd, gpx, ns2, one"):
            read_text(tmp_path, text)
    with pytest.raises(FileError, match="known are bonnmotion"):
        read_motion(DATA / "sample.csv", "cvs")
    with pytest.raises(FileError, match="does not exist"):
        read_motion(tmp_path / "nowhere")


# Refusals: one row each, with the place

FCD = '<fcd-export><timestep time="5">{}</timestep></fcd-export>'
GPX = "<gpx><trk><trkseg>{}</trkseg></trk></gpx>"
NS2 = "$node_(0) set X_ 1\n$node_(0) set Y_ 1\n"
BAD = [
    ("ns2", NS2 + '$ns_ at 1 "$node_(0) setdest 1 nan 3"', ":3: y is 'nan', not a finite number"),
    ("ns2", NS2 + '$ns_ at -1 "$node_(0) setdest 1 2 3"', ":3: time is -1; times are 0 s or later"),
    ("ns2", NS2 + '$ns_ at 1 "$node_(0) setdest 1 2 -3"', ":3: speed is -3"),
    ("ns2", NS2 + '$ns_ at 1 "$node_(0) setdest 1 2"', ":3: order 'setdest 1 2'; expected setdest x y speed"),
    ("ns2", NS2 + '$ns_ at 1 "$node_(0) setdst 1 2 3"', ":3: order 'setdst 1 2 3'"),
    ("ns2", NS2 + '$ns_ at 1 "$node_(0) setdest 1 2 3', ":3: .* is no ns-2 movement"),
    ("ns2", NS2 + '$ns_ at 1 "$node_(0) setdest 900 2 1e-30"', ":3: node arrives after"),
    ("ns2", '$ns_ at 1 "$node_(7) setdest 1 2 3"', ":1: node 7 has no initial X_ and Y_"),
    ("ns2", "$node_(0) set X_ 1", ":1: node 0 has no initial"),
    ("ns2", NS2 + '$ns_ at 0 "$node_(0) switch OFF"', "switches every node off"),
    ("ns2", "# nothing\n", "holds no node"),
    ("bonnmotion", "0 1 2 3 4\n", ":1: has 5 numbers; a path is t x y"),
    ("bonnmotion", "0 1 2\n0 1 2 3 4 5 6 7\n", ":2: is a three-dimensional path"),
    ("bonnmotion", "0 1 2 9 1 7 5 8 2 9 9 9\n", ":1: is a three-dimensional path"),
    ("bonnmotion", "5 1 2 4 1 2\n", r":1: goes back in time at waypoint 2 \(4 s\)"),
    ("bonnmotion", "0 1 2 0 3 4\n", ":1: node 0 is at two places at 0 s"),
    ("bonnmotion", "0 inf 2\n", ":1: x of waypoint 1 is 'inf'"),
    ("bonnmotion", "\n", "holds no fix"),
    ("one", "0 9 0 9 0\n", ":1: has 5 numbers; the first line is minTime maxTime"),
    ("one", "0 9 0 9 0 9\n1 a 1\n", ":2: has 3 fields; a row is time id x y"),
    ("one", "0 9 0 9 0 9\n10 a 1 1\n", ":2: time 10 is outside the header's 0 to 9"),
    ("one", "0 9 0 9 0 9\n1 a 1 10\n", r":2: place \(1, 10\) is outside"),
    ("one", "0 9 0 9 0 9\n2 a 1 1\n1 a 1 1\n", ":3: time 1 comes after a later one"),
    ("one", "0 9 0 9 0 9\n", "holds no fix"),
    ("csv", "a,1,2,3\n", ":1: header is 'a,1,2,3'; it names node,time,x,y or node,time,lat,lon"),
    ("csv", "node,time,x,y,x\n", ":1: header"),
    ("csv", "node,time,x,y\na,1,2\n", ":2: has 3 columns, the header 4"),
    ("csv", "node,time,x,y\n\na,1,2,3\na,1,2,4\n", r":4: node a is at two places at 1 s \(see line 3\)"),
    ("csv", "node,time,x,y\n,1,2,3\n", ":2: node is ''"),
    ("csv", "node,time,x,y\na,1_0,2,3\n", ":2: time is '1_0', not a number of seconds"),
    ("csv", "node,time,x,y\na,1418767200000,2,3\n", ":2: time is 1418767200000 s, beyond .* milliseconds"),
    ("csv", "node,time,x,y\na,1e300,2,3\n", ":2: time is 1e300 s, beyond"),
    ("csv", "node,time,x,y\na,1,1e999,3\n", ":2: x is '1e999', not a finite number"),
    ("csv", "node,time,x,y\na,1,1e10,3\n", ":2: x is 1e10; positions are metres between"),
    ("csv", "node,time,x,y\na,1,٣,3\n", ":2: x is '٣', not a finite number"),
    ("csv", 'node,time,x,y\n"a,1,2,3\n', ":2: is no CSV row"),
    ("csv", "node,time,lat,lon\na,1,90.1,3\n", ":2: latitude is 90.1; it lies between"),
    ("csv", "node,time,lat,lon\na,1,9,-180.1\n", ":2: longitude is -180.1; it lies between"),
    ("csv", "node,time,lat,lon\na,1,90,0\n", "mean place near a pole"),
    ("csv", "node,time,x,y\n", "holds no fix"),
    ("csv", b"node,time,x,y\na,1,2,3\n\xff,1,2,3\n", r":3: is not UTF-8 text \(byte 1\)"),
    ("csv", "node,time,x,y\n" + "a" * 70_000, ":2: is a line of more than 65536 bytes"),
    ("cabs", "37 -122 2 100\n", ":1: occupied is '2'; it is 0 or 1"),
    ("cabs", "37 -122 0\n", ":1: has 3 fields; a row is latitude longitude occupied unix_time"),
    ("cabs", "37 -122 0 5\n38 -122 0 5\n", ":2: node file is at two places"),
    ("fcd", FCD.format('<vehicle id="a" x="1"/>'), ":1: vehicle has no attribute y"),
    ("fcd", FCD.format('<vehicle id="" x="1" y="1"/>'), ":1: vehicle id is ''"),
    ("fcd", FCD.format("")[:-5], ":1: is damaged, truncated or hostile XML"),
    (
        "fcd",
        FCD.format('</timestep>\n<timestep time="5">'),
        ":2: timestep 5 comes after a later or equal one",
    ),
    ("fcd", '<fcd-export><vehicle id="a" x="1" y="1"/></fcd-export>', ":1: vehicle outside a timestep"),
    ("fcd", FCD.format(""), "holds no fix"),
    ("fcd", "<gpx/>", ":1: root element is gpx; expected fcd-export"),
    ("fcd", "", "XML"),
    ("gpx", GPX.format('<trkpt lat="1" lon="1"/>'), ":1: trkpt has no time"),
    ("gpx", GPX.format('<trkpt lat="1"><time>2026-01-01T00:00:00Z</time></trkpt>'), ":1: longitude is ''"),
    ("gpx", GPX.format('<trkpt lat="1" lon="1"><time>2026-01-01</time></trkpt>'), ":1: time is '2026-01-01'"),
    (
        "gpx",
        GPX.format('<trkpt lat="1" lon="1"><time>0001-01-01T00:00:00+23:00</time></trkpt>'),
        ":1: time is",
    ),
    ("gpx", GPX.format('<trkpt lat="1" lon="1"><time>1969-12-31T23:59:59Z</time></trkpt>'), "1970 or later"),
    (
        "gpx",
        GPX.format(
            '<trkpt lat="1" lon="1"><time>2026-01-01T00:00:01Z</time></trkpt>\n'
            '<trkpt lat="1" lon="1"><time>2026-01-01T00:00:00Z</time></trkpt>'
        ),
        ":2: time 2026-01-01T00:00:00Z comes after a later one",
    ),
    ("gpx", GPX.format(""), "holds no fix"),
]


@pytest.mark.parametrize(("format", "text", "message"), BAD)
def test_bad_rows_are_refused_with_their_place(
    tmp_path: Path, format: str, text: str | bytes, message: str
) -> None:
    with pytest.raises(FileError, match=message) as caught:
        read_text(tmp_path, text, format=format)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "file") in caught.value.where


@pytest.mark.parametrize("format", sorted(MOTION_FORMATS))
def test_truncated_gzip_is_refused(tmp_path: Path, format: str) -> None:
    source = {"ns2": "sample.ns_movements", "one": "sample-one-movement.txt", "cabs": "cabs/new_abboip.txt"}
    name = (
        source.get(format)
        or {"fcd": "sample-fcd.xml"}.get(format)
        or "sample." + ("movements" if format == "bonnmotion" else format)
    )
    packed = gzip.compress((DATA / name).read_bytes())
    for cut in (packed[:-4], packed[: len(packed) // 2], packed[:20] + b"\x00" * 20 + packed[40:]):
        with pytest.raises(FileError):
            read_text(tmp_path, cut, format=format)


HOSTILE = {
    "billion laughs": '<!DOCTYPE fcd-export [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    '<fcd-export><timestep time="0"><vehicle id="&b;" x="1" y="1"/></timestep></fcd-export>',
    "a file from outside": '<!DOCTYPE fcd-export [<!ENTITY a SYSTEM "file:///etc/hostname">]>'
    '<fcd-export>&a;<timestep time="0"><vehicle id="v" x="1" y="1"/></timestep></fcd-export>',
    "an outer document type": '<!DOCTYPE fcd-export SYSTEM "http://localhost:9/x.dtd"><fcd-export/>',
}


@pytest.mark.parametrize("attack", sorted(HOSTILE))
def test_xml_with_a_document_type_is_refused(tmp_path: Path, attack: str) -> None:
    with pytest.raises(FileError, match="DOCTYPE"):
        read_text(tmp_path, HOSTILE[attack], format="fcd")


def test_entity_bombs_in_the_root_and_endless_depth_are_refused(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY e{k} "{f"&e{k - 1};" * 20}">' for k in range(1, 12))
    bomb = f'<!DOCTYPE gpx [<!ENTITY e0 "ha">{entities}]><gpx creator="&e11;"/>'
    with pytest.raises(FileError):
        read_text(tmp_path, bomb, format="gpx")
    with pytest.raises(FileError, match="XML"):
        read_text(tmp_path, "<gpx>" + "<a>" * 100_000, format="gpx")


def test_options_outside_their_range_are_refused() -> None:
    for options in ({"max_gap": 0.0}, {"max_gap": math.nan}, {"duration": -1.0}):
        with pytest.raises(InputError, match="seconds above 0"):
            read_motion(DATA / "sample.csv", **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"origin: is \(90.5, 0.0\)"):
        read_motion(DATA / "sample-geographic.csv", origin=(90.5, 0.0))
