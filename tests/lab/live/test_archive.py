import math
import random
from pathlib import Path

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyarrow import dataset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from tests.lab.live.segments import write_node

from roamcast.errors import FileError, FilterError, InputError
from roamcast.event import Event, Value
from roamcast.filter import Filter
from roamcast.lab.live.archive import (
    Addition,
    Archived,
    ArchivedFile,
    _agreeing,
    _tables,
    _write,
    add_segments,
    additions,
    archive,
    instant,
    select,
    tables,
)
from roamcast.lab.live.conditions import condition, may_match
from roamcast.lab.spark.session import session
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import put_manifest
from roamcast.node import published_record
from roamcast.units import SECOND

pytestmark = pytest.mark.spark

WHOLE = [0, 1, -3, 7, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
REAL = [0.0, -0.0, 0.5, -3.0, 7.25, 1e300, 2.0**53, 2.0**63, float("inf"), float("nan")]
TEXT = [
    "",
    "a",
    "A",
    "ab",
    "a_b",
    "50%",
    "it's",
    "Ünï",
    "\U0001f600",
    "line\nend",
    "back\\slash",
    "7",
    "true",
]
# Which values each attribute takes; `mixed` disagrees about kinds, `Level` and `level` differ in case alone.
ATTRIBUTES: dict[str, list[Value]] = {
    "whole": [*WHOLE, None],
    "large": [*WHOLE, 2**64 - 1, 2**63],
    "real": [*REAL, 1, 7],
    "number": [0, 1, 7, 0.5, 7.25],
    "text": [*TEXT, None],
    "flag": [True, False],
    "mixed": [1, 7, "7", "a", True, 0.5, 2**53 + 1],
    "level": [1, 2, 3],
    "Level": ["low", "high"],
    "odd `name`.x": [1, 2],
    "select": ["a", "b"],
}
TOPICS = ["", "a", "a/b", "a/b/c", "/", "a/", "$sys/a", "b.c/d+e", "a\n/b"]
TYPES = ["", "alarm", "alarm.fire", "alarms", "al"]


def random_events(chance: random.Random, count: int) -> list[Archived]:
    events = []
    for sequence in range(count):
        names = [name for name in ATTRIBUTES if chance.random() < 0.75]
        attributes = {name: chance.choice(ATTRIBUTES[name]) for name in names}
        topic, type_ = chance.choice(TOPICS), chance.choice(TYPES)
        events.append(Archived(sequence * 10, Event(1, sequence, attributes, b"x", topic, type_)))
    return events


def literal(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def plain(values: list[Value]) -> list[Value]:
    """Those that can be written in a filter."""
    unspeakable = ("nan", "inf")
    return [v for v in values if v is not None and repr(v) not in unspeakable and "\\" not in str(v)]


class Texts:
    """Random filter texts. `alike`: only those that Spark itself reads as a subscription does."""

    def __init__(self, chance: random.Random, *, alike: bool) -> None:
        self._chance = chance
        self._alike = alike
        everything: list[Value] = [*WHOLE, *REAL, *TEXT, True, False, 7.0, -1e-3, 9.007199254740993e15]
        self._anything = [v for v in plain(everything) if v != 2**63]

    def distinct(self, count: int) -> list[str]:
        texts: dict[str, None] = {}
        while len(texts) < count:
            texts[self.text(depth=2)] = None
        return list(texts)

    def text(self, depth: int) -> str:
        chance = self._chance
        if depth == 0 or chance.random() < 0.2:
            return self._leaf()
        match chance.randrange(4):
            case 0:
                return f"NOT ({self.text(depth - 1)})"
            case 1:
                return f"({self.text(depth - 1)}) AND ({self.text(depth - 1)})"
            case 2:
                return f"({self.text(depth - 1)}) OR ({self.text(depth - 1)})"
        return f"{self.text(0)} AND {self.text(0)} OR {self.text(0)}"

    def _leaf(self) -> str:
        chance = self._chance
        names = (
            ["whole", "number", "text", "flag", "level", "Level"] if self._alike else [*ATTRIBUTES, "none"]
        )
        attribute = chance.choice(names)
        name = (
            attribute
            if attribute.isalpha() and attribute != "select"
            else f"`{attribute.replace('`', '``')}`"
        )
        values = (
            plain(ATTRIBUTES.get(attribute, [1])) if self._alike or chance.random() < 0.7 else self._anything
        )
        values = [v for v in values if not isinstance(v, int) or abs(v) < 2**63] or [1]
        one, other = chance.choice(values), chance.choice(values)
        several = ", ".join(literal(chance.choice(values)) for _ in range(chance.randrange(1, 4)))
        no = chance.choice(["", "NOT "])
        match chance.randrange(7):
            case 0:
                return f"{name} IS {no}NULL"
            case 1:
                return f"{name} {no}IN ({several})"
            case 2:
                return f"{name} {no}BETWEEN {literal(one)} AND {literal(other)}"
            case 3 if attribute in ("text", "Level") or not self._alike:
                pattern = chance.choice(
                    ["%", "a%", "_", "%b", "a!_b", "%!%", "___", "i_'s", "%\n%", "Ün_", "7"]
                )
                escape = " ESCAPE '!'" if "!" in pattern else ""
                return f"{name} {no}LIKE {literal(pattern)}{escape}"
            case 4 if attribute == "flag":
                return no + name
            case 5 if not self._alike:
                topic = chance.choice(
                    ["a", "#", "+", "a/#", "+/b", "a/+/c", "/#", "b.c/d+e", "$sys/#", "+/+"]
                )
                topic = topic if topic != "b.c/d+e" else "b.c/#"
                if chance.random() < 0.3:  # `whole` and `number` as degrees
                    return f"{no}WITHIN(whole, number, 1, 2, {chance.choice([1e5, 5e5, 1e7])})"
                return f"{no}ON_TOPIC('{topic}')" if chance.random() < 0.5 else f"{no}OF_TYPE('alarm')"
        return f"{name} {chance.choice(['=', '<>', '<', '<=', '>', '>='])} {literal(one)}"


def matching(frame: DataFrame) -> list[int]:
    return sorted(row.sequence for row in frame.select("_event.sequence").collect())


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Archived]]:
    """Some events were added by a program; most come from a trace, as `roamcast archive add` takes them."""
    folder, traces = (tmp_path_factory.mktemp(name) for name in ("archive", "traces"))
    events = random_events(random.Random(1), 60)
    infinite = [e for e in events if math.inf in e.event.attributes.values()]  # in a trace they are NULL
    archive(iter(infinite), folder)
    traced = [published_record(e.t, e.event) for e in events if e not in infinite]
    assert len(traced) > 40
    write_node(traces, 1, traced, segment_seconds=1e-4)
    added = add_segments(str(traces), str(folder))
    assert (added.events, added.refused) == (len(traced), []) and added.segments > 3
    assert add_segments(str(traces), str(folder)).events == 0  # each segment once
    return folder, events


def test_a_filter_selects_from_the_archive_what_it_matches_live(
    archived: tuple[Path, list[Archived]],
) -> None:
    folder, events = archived
    texts = Texts(random.Random(2), alike=False)
    filters = texts.distinct(150)
    expected = {
        text: [e.event.sequence for e in events if Filter.sql(text).matches(e.event)] for text in filters
    }
    found: dict[str, list[int]] = {text: [] for text in filters}
    for table, types in _tables(session(), folder, lambda _: True):
        columns = [
            F.expr(condition(Filter.sql(text).expression, types)).alias(f"c{n}")
            for n, text in enumerate(filters)
        ]
        for sequence, *truths in table.select("_event.sequence", *columns).collect():
            for text, truth in zip(filters, truths, strict=True):
                if truth:
                    found[text].append(sequence)
    for text in filters:
        assert sorted(found[text]) == expected[text], text
    counts = [len(rows) for rows in expected.values()]
    assert sum(0 < count < len(events) for count in counts) > 90  # else the test shows little
    for text in filters[:3]:
        assert matching(select(session(), folder, text)) == expected[text], text


def test_sparks_own_reading_of_a_text_agrees_where_kinds_do(archived: tuple[Path, list[Archived]]) -> None:
    folder, events = archived
    texts = Texts(random.Random(3), alike=True)
    filters = texts.distinct(150)
    expected = {
        text: [e.event.sequence for e in events if Filter.sql(text).matches(e.event)] for text in filters
    }
    found: dict[str, list[int]] = {text: [] for text in filters}
    for table in tables(session(), folder):
        columns = [F.expr(text).alias(f"c{n}") for n, text in enumerate(filters)]
        for sequence, *truths in table.select("_event.sequence", *columns).collect():
            for text, truth in zip(filters, truths, strict=True):
                if truth:
                    found[text].append(sequence)
    for text in filters:
        assert sorted(found[text]) == expected[text], text
    text = filters[0]
    assert (
        sorted(n for table in tables(session(), folder) for n in matching(table.filter(text)))
        == expected[text]
    )


@pytest.mark.parametrize(
    ("text", "sequences"),
    [
        ("a = 9007199254740993", [0]),  # as doubles, 1 would be equal too
        ("a = 9007199254740992", [1]),
        ("a > 9007199254740992", [0, 2]),
        ("a < 9007199254740993.0", [4]),  # the literal is the double 9007199254740992
        ("a = '7'", [3]),  # text, not the number
        ("a = 7", [4]),
        ("a = 7.0", [4]),
        ("a > 6.5 AND a < 7.5", [4]),
        ("a NOT IN (7)", [0, 1, 2]),
        ("a NOT IN (7, 'x')", []),
        ("a IS NULL", [5, 6]),
        ("NOT a = 7", [0, 1, 2]),
        ("A IS NOT NULL", [6]),
        ("nowhere IS NULL AND a = 7", [4]),
        ("ON_TOPIC('+/fire') AND OF_TYPE('alarm')", [6]),
    ],
)
def test_selections_by_hand(
    text: str, sequences: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "by-hand"
    if not folder.exists():
        values: list[Value] = [2**53 + 1, 2.0**53, 1e18, "7", 7, float("nan")]
        events = [Archived(n, Event(1, n, {"a": value})) for n, value in enumerate(values)]
        events.append(Archived(6, Event(1, 6, {"A": 1}, topic="b/fire", type="alarm.fire")))
        archive(events, folder)
    assert matching(select(session(), folder, text)) == sequences


def test_events_that_disagree_about_a_kind_go_apart_and_others_stay_together(tmp_path: Path) -> None:
    rows: list[dict[str, Value]] = [
        {"a": 1},
        {"a": 1.5, "b": "x"},
        {"b": "y"},
        {"a": "text"},
        {"a": 2**53 + 1},
        {"c": 2**64 - 1},
    ]
    added = archive([Archived(0, Event(1, n, row)) for n, row in enumerate(rows)], tmp_path)
    schemas = [
        {f.name: str(f.type) for f in pq.read_schema(tmp_path / file) if f.name != "_event"}
        for file in added.files
    ]
    assert schemas == [
        {"a": "double", "b": "string", "c": "decimal128(20, 0)"},
        {"a": "string"},
        {"a": "int64"},
    ]
    assert select(session(), tmp_path, "TRUE").columns == ["_event", "b", "c"]
    everything = select(session(), tmp_path, "TRUE").selectExpr("_event.*").orderBy("sequence").collect()
    assert [row.attributes for row in everything][:2] == ['{"a":1}', '{"a":1.5,"b":"x"}']


def test_what_is_no_archive_or_cannot_be_said_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no archived events"):
        select(session(), tmp_path, "a = 1")
    with pytest.raises(InputError, match="2\\*\\*64"):
        archive([Archived(0, Event(1, 1, {"a": 2**64}))], tmp_path)
    archive([Archived(0, Event(1, 1, {"_event": 1, "": 2, "a": 3}))], tmp_path)
    assert matching(select(session(), tmp_path, "a = 3")) == [1]
    with pytest.raises(FilterError, match="own column"):
        select(session(), tmp_path, "_event = 1")
    with pytest.raises(FilterError):
        select(session(), tmp_path, "a = 1 + 2")
    (tmp_path / "mine.parquet").write_text("no")  # no manifest names it
    assert matching(select(session(), tmp_path, "a = 3")) == [1]
    (file,) = tmp_path.glob("events-*.parquet")
    pq.write_table(pq.read_table(file).slice(1), file)
    with pytest.raises(FileError, match=rf"{file}: has \d+ octets; its manifest says"):
        select(session(), tmp_path, "a = 3")
    file.unlink()
    with pytest.raises(FileError, match="is missing"):
        select(session(), tmp_path, "a = 3")


def test_times_of_the_command_line() -> None:
    assert instant("1970-01-02", "--since") == 86_400 * SECOND
    assert instant("1970-01-01T01:00+01:00", "--since") == 0
    assert instant("12.5", "--since") == 12_500_000
    with pytest.raises(InputError, match="--since: is 'yesterday'; allowed: 2026-05-01"):
        instant("yesterday", "--since")


def test_a_file_that_has_an_answer_is_never_left_out(tmp_path: Path) -> None:
    """Random events in files of a few, random filters: what matches an event may match its file."""
    draw, texts = random.Random(7), Texts(random.Random(8), alike=False)
    filters = [Filter.sql(text) for text in texts.distinct(200)]
    events = random_events(draw, 300)
    left_out = 0
    for at in range(0, len(events), 5):
        some = events[at : at + 5]
        for part in _agreeing(some):
            _, file = _write(part, Storage.open(tmp_path))
            back = msgspec.json.decode(msgspec.json.encode(file), type=ArchivedFile)
            for each in filters:
                may = may_match(each.expression, back.columns(), back.ranges)
                left_out += not may
                assert may or not any(each.matches(row.event) for row in part.rows), each
    assert left_out > 1_000, "else nothing is pruned"


def test_a_question_opens_only_the_files_of_its_time_and_place(tmp_path: Path) -> None:
    """A season, a file for each day; all but one are gone, and nobody notices until they are asked for."""
    day = 86_400 * SECOND
    for number in range(5):
        place: dict[str, Value] = {"lat": 48.0 + number, "lon": 11.0, "level": number}
        archive([Archived(number * day, Event(1, number, place))], tmp_path)
    for file, known in [pair for addition in additions(tmp_path) for pair in addition.files.items()]:
        if known.first != 3 * day:
            (tmp_path / file).unlink()
    for text, since in (("TRUE", 3 * day), ("level = 3", 0), ("WITHIN(lat, lon, 51.001, 11, 1000)", 0)):
        assert matching(select(session(), tmp_path, text, since, 4 * day)) == [3], text
    with pytest.raises(FileError, match="is missing"):
        select(session(), tmp_path, "TRUE", 2 * day, 4 * day)


def test_a_manifest_that_was_cut_or_changed_is_named(tmp_path: Path) -> None:
    """A range that shrank by hand would leave out answers in silence."""
    archive([Archived(0, Event(1, 1, {"level": 7}))], tmp_path)
    (manifest,) = tmp_path.glob("added-*.json")
    whole = manifest.read_bytes()
    assert b"[7,7]" in whole
    for content, told in (
        (whole[: len(whole) // 2], "is no manifest"),
        (b"", "is empty"),
        (b"\xff", "is no manifest"),
        (whole.replace(b"[7,7]", b"[8,8]"), "has not the digest"),
    ):
        manifest.write_bytes(content)
        with pytest.raises(FileError, match=f"{manifest}: {told}"):
            select(session(), tmp_path, "level = 7")
    (file,) = tmp_path.glob("*.parquet")
    types = {"level": "int77"}
    rows = ArchivedFile(rows=1, size=1, sha256="", types=types, ranges={}, first=0, last=0)
    put_manifest(Storage.open(tmp_path), manifest.name, Addition({file.name: rows}, []))
    with pytest.raises(FileError, match=f"{manifest}: is no manifest: .*files"):
        select(session(), tmp_path, "level = 7")


def test_an_archive_of_version_02_is_read(tmp_path: Path) -> None:
    archive([Archived(0, Event(1, 1, {"level": 7}))], tmp_path)
    (manifest,) = tmp_path.glob("added-*.json")
    (file,) = tmp_path.glob("*.parquet")
    manifest.write_text(f'{{"files": {{"{file.name}": 1}}, "sources": ["a"]}}')
    assert matching(select(session(), tmp_path, "level = 7")) == [1]
    assert [(each.files[file.name].rows, each.sources) for each in additions(tmp_path)] == [(1, ["a"])]


def test_others_read_an_archive_and_skip_files_by_their_statistics(tmp_path: Path) -> None:
    """As docs/study/live-traces.md has it, without Roamcast: here by pyarrow's datasets."""
    day = 86_400 * SECOND
    for number in range(5):
        events = [Archived(number * day + i, Event(1, 10 * number + i, {"level": number})) for i in range(3)]
        archive(events, tmp_path)
    found = dataset.dataset([str(file) for file in tmp_path.glob("events-*.parquet")])
    when = dataset.field("_event", "t")
    for wanted in (dataset.field("level") == 3, (when >= 3 * day) & (when < 4 * day)):
        table = found.to_table(filter=wanted)
        assert sorted(row["sequence"] for row in table["_event"].to_pylist()) == [30, 31, 32]
        groups = [each.split_by_row_group(wanted) for each in found.get_fragments()]
        assert sorted(map(len, groups)) == [0, 0, 0, 0, 1], "the other files' rows are not read"
