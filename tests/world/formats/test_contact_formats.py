"""Recorded contacts: each format against plans worked out by hand, and against what must be refused."""

from pathlib import Path

import pytest

from roamcast.errors import FileError
from roamcast.units import SECOND
from roamcast.world.contacts import ContactPlan
from roamcast.world.formats import ReadContacts, read_contacts

DATA = Path(__file__).parents[2] / "data"


def rows(plan: ContactPlan) -> list[tuple[int, int, float, float]]:
    """`(a, b, start, end)` in seconds."""
    columns = (plan.sender.tolist(), plan.receiver.tolist(), plan.start.tolist(), plan.end.tolist())
    return [(a, b, start / SECOND, end / SECOND) for a, b, start, end in zip(*columns, strict=True)]


def read_text(tmp_path: Path, text: str | bytes, format: str | None = None, **options: float) -> ReadContacts:
    file = tmp_path / "file"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_contacts(file, format, **options)  # type: ignore[arg-type]


def test_one_contacts_last_as_long_as_either_side_saw_the_other() -> None:
    plan, names = read_contacts(DATA / "sample-one-contacts.tsv")
    assert names == ["7", "9", "10"]
    # 7-9 from 0 to 5 by one side and to 8.25 by the other; 10-7 taken down under its other name.
    assert rows(plan) == [(0, 1, 0, 8.25), (0, 2, 8.25, 9)]


def test_one_contacts_without_length_need_a_tail(tmp_path: Path) -> None:
    text = "0 CONN 1 2 up\n0 CONN 1 2 down\n5 CONN 1 2 up\n6 CONN 1 2 down\n"
    assert rows(read_text(tmp_path, text).plan) == [(0, 1, 5, 6)]
    assert rows(read_text(tmp_path, text, tail=2.0).plan) == [(0, 1, 0, 2), (0, 1, 5, 8)]


def test_haggle_rows_of_both_sides_are_joined_and_one_scan_is_a_second() -> None:
    plan, names = read_contacts(DATA / "sample-haggle.dat")
    assert names == ["1", "2", "10"]
    assert rows(plan) == [(0, 1, 100, 201), (0, 2, 300, 301), (0, 1, 400, 411)]
    assert rows(read_contacts(DATA / "sample-haggle.dat", tail=0.0).plan) == [
        (0, 1, 100, 200),
        (0, 1, 400, 410),
    ]


def test_sociopatterns_rows_are_the_twenty_seconds_before() -> None:
    plan, names = read_contacts(DATA / "sample-sociopatterns.dat")
    assert names == ["3", "8", "11"]
    assert rows(plan) == [(0, 1, 980, 1020), (1, 2, 1020, 1040), (0, 1, 1040, 1060)]


def test_our_plan_keeps_node_numbers_and_counts_the_silent() -> None:
    plan, names = read_contacts(DATA / "plan.csv")
    assert plan.nodes == 5 and names == ["0", "1", "2", "3", "4"] and not plan.directed
    assert rows(plan) == [(0, 1, 0, 2.5), (1, 2, 1, 7)]
    assert read_contacts(DATA / "plan.csv", nodes=9).plan.nodes == 9
    with pytest.raises(FileError, match="has nodes up to 4; 0 to 3 exist"):
        read_contacts(DATA / "plan.csv", nodes=4)


def test_our_plan_needs_no_header(tmp_path: Path) -> None:
    plan = read_text(tmp_path, "0,3,1,up\n4,1,3,down\n").plan
    assert plan.nodes == 4 and rows(plan) == [(1, 3, 0, 4)]


def test_our_plan_may_be_directed(tmp_path: Path) -> None:
    plan = read_text(tmp_path, "time,from,to,state\n0,1,0,up\n1,0,1,up\n2,1,0,down\n3,0,1,down\n").plan
    assert plan.directed and rows(plan) == [(1, 0, 0, 2), (0, 1, 1, 3)]


def test_links_never_taken_down_last_for_the_duration(tmp_path: Path) -> None:
    text = "0,0,1,up\n0,1,2,up\n30,1,2,down\n"
    assert rows(read_text(tmp_path, text, duration=60.0).plan) == [(0, 1, 0, 60), (1, 2, 0, 30)]
    assert rows(read_text(tmp_path, text, duration=10.0).plan)[0] == (0, 1, 0, 30)  # at least to the last row
    with pytest.raises(
        FileError, match=":1: 0 1 goes up and never down; add a row with down or state a duration"
    ):
        read_text(tmp_path, text)


def test_the_same_row_twice_is_tolerated(tmp_path: Path) -> None:
    text = "0,0,1,up\n0,1,0,up\n2,0,1,down\n2,0,1,down\n"
    assert rows(read_text(tmp_path, text).plan) == [(0, 1, 0, 2)]


def test_times_are_exact_to_the_microsecond(tmp_path: Path) -> None:
    plan = read_text(tmp_path, "0.1,0,1,up\n1211439600.000003,0,1,down\n").plan
    assert plan.start.tolist() == [100_000] and plan.end.tolist() == [1_211_439_600_000_003]
    assert read_text(tmp_path, "1.0E-6,0,1,up\n.3,0,1,down\n").plan.start.tolist() == [1]


BAD = [
    ("one", "0 CONN 1 2 upp\n", ":1: '0 CONN 1 2 upp'; a row is time CONN a b up|down"),
    ("one", "0 C M1 1 2 5\n", ":1: .*a row is time CONN"),
    ("one", "5 CONN 1 2 up\n4 CONN 1 2 down\n", ":2: time 4 comes after a later one"),
    ("one", "5 CONN 1 2 up\n6 CONN 1 2 up\n", ":2: 1 2 goes up but is up since line 1"),
    ("one", "5 CONN 1 2 down\n", ":1: 1 2 goes down but is not up"),
    ("one", "5 CONN 1 1 up\n", ":1: node 1 is in contact with itself"),
    ("one", "nan CONN 1 2 up\n", ":1: time is 'nan'"),
    ("one", "", "holds no contact"),
    ("haggle", "1 2 3\n", ":1: has 3 fields; a row is id1 id2 start end count gap"),
    ("haggle", "1 2 5 4 1 0\n", ":1: ends at 4, before its start at 5"),
    ("haggle", "1 1 3 4 1 0\n", ":1: node 1 is in contact with itself"),
    ("haggle", "1 2 3 4 x 0\n", ":1: count is 'x'"),
    ("haggle", "1 2 1418767200000 1418767560000\n", ":1: .*milliseconds"),
    ("sociopatterns", "1000 1\n", ":1: has 2 fields; a row is t i j"),
    ("sociopatterns", "19 1 2\n", ":1: t is 19; .* t is 20 s or later"),
    ("sociopatterns", "20 2 2\n", ":1: node 2 is in contact with itself"),
    ("plan", "", "is empty; expected rows time,i,j,up|down"),
    ("plan", "time,i,j,state\n0,1,2\n", ":2: '0,1,2'; a row is time,i,j,up|down"),
    ("plan", "0,1,2,on\n", ":1: .*a row is time,i,j,up|down"),
    ("plan", "0,1,-2,up\n", ":1: node is '-2'; it is a number from 0"),
    ("plan", "0,1,9999999,up\n", ":1: node is '9999999'; it is a number from 0 to 999999"),
    ("plan", "-1,1,2,up\n", ":1: time is -1; times are 0 s or later"),
    ("plan", "1,2,1,up\n0,1,2,down\n", ":2: 1 2 goes down but is not up"),
    ("plan", "1,2,1,up\n2,1,2,up\n", ":2: 1 2 goes up but is up since line 1"),
    ("plan", "1,2,2,up\n", ":1: node 2 is in contact with itself"),
    ("plan", "0,1,2,up\ntime,i,j,state\n", ":2: .*a row is"),
    ("plan", b"0,1,2,up\n\xfe", r":2: is not UTF-8 text"),
]


@pytest.mark.parametrize(("format", "text", "message"), BAD)
def test_bad_rows_are_refused_with_their_place(
    tmp_path: Path, format: str, text: str | bytes, message: str
) -> None:
    with pytest.raises(FileError, match=message) as caught:
        read_text(tmp_path, text, format)
    assert "\n" not in str(caught.value)


def test_a_plan_too_wide_for_its_arithmetic_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"0 {k} 0 99999999999\n" for k in range(1, 200))
    with pytest.raises(FileError, match="too much for one plan"):
        read_text(tmp_path, rows, "haggle")


@pytest.mark.parametrize(
    "name", ["sample-one-contacts.tsv", "sample-haggle.dat", "sample-sociopatterns.dat", "plan.csv"]
)
def test_the_format_is_told_by_the_content_alone(tmp_path: Path, name: str) -> None:
    guessed = read_text(tmp_path, (DATA / name).read_bytes())
    assert rows(guessed.plan) == rows(read_contacts(DATA / name).plan)


def test_what_cannot_be_told_lists_the_formats(tmp_path: Path) -> None:
    for text in ("", "hello\n", "1 2\n", "a,b\n"):
        with pytest.raises(FileError, match="state one of haggle, one, plan, sociopatterns"):
            read_text(tmp_path, text)
    with pytest.raises(FileError, match="state one of"):
        read_contacts(tmp_path)
