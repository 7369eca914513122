"""Tables of contacts: Haggle, SocioPatterns, The ONE, and our own plans.

Some formats list intervals, some switch links up and down. Both end as intervals under the names of the
recording, joined per pair: where two devices each recorded the other (Haggle), the contact lasts as long as
either side saw it.

**Haggle** (CRAWDAD cambridge/haggle): `id1 id2 start end [count [gap]]` rows in whole seconds, in any order.
A row is what device id1 saw of id2; either side may have missed the other, so the plan holds the union of
both. Start and end are the first and the last scan that heard the other: a device heard once has start = end
(more than half of the Infocom 2005 rows). Both seconds count, so a contact lasts until `end + tail`, with a
tail of 1 s by default. Scans were 120 s apart; a study that wants contacts to last that long sets `tail`.

**SocioPatterns** face-to-face contacts: `t i j` rows, a contact during the 20 s up to t, in any order.
Further columns (classes, departments) are ignored. Adjacent rows of a pair join to one contact.

**The ONE**'s connection events: `time CONN a b up|down`, sorted by time, separated by blanks or tabs. Files
made from Bluetooth sightings (Haggle) hold both sides of a meeting as `a b` and `b a`, overlapping: each side
is followed on its own and the plan holds their union. A contact that goes up and down at the same instant has
no duration, in The ONE and here, unless the caller asks for a `tail`. Other events of The ONE (messages) are
refused.

**Our own plan**: CSV rows `time,i,j,up|down`, in seconds and node numbers. The header is `time,i,j,state` for
links that work both ways (also meant where there is no header) or `time,from,to,state` for one-way links.
Rows may come in any order; rows of the same time are taken as they stand. `i` and `j` are node numbers as the
scenario counts them, so unlike recordings nothing is renumbered. Lines that begin with `#` are comments; the
writer's first line, `# nodes: 7`, keeps the count where the last nodes never meet anyone. A link that is
never taken down lasts until the scenario's duration.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from roamcast.errors import FileError
from roamcast.units import SECOND, Micros
from roamcast.world.contacts import ContactPlan
from roamcast.world.formats.text import (
    lines,
    name_of,
    name_order,
    number_of,
    opened,
    rows,
    save_lines,
    seconds_text,
    shown,
    time_of,
)

HAGGLE_TAIL = 1 * SECOND
SLOT = 20 * SECOND  # the time resolution of the SocioPatterns badges
NODES_MAX = 1_000_000  # in one of our own plans

_INT64_MAX = 2**63 - 1
_BOTH_WAYS = ["time", "i", "j", "state"]
_ONE_WAY = ["time", "from", "to", "state"]
_COUNT = re.compile(r"#\s*nodes:\s*([0-9]{1,7})\s*")


class ReadContacts(NamedTuple):
    """A plan, and what the recording called each node."""

    plan: ContactPlan
    names: list[str]


@dataclass(frozen=True)
class ContactOptions:
    """How to read contacts: `read_contacts` fills in each format's defaults."""

    tail: Micros = 0  # added to the end of every contact
    duration: Micros | None = None  # when links that are never taken down end, at the earliest
    nodes: int | None = None  # how many nodes there are at least


class Encounter(NamedTuple):
    """One interval of one pair."""

    a: str
    b: str
    start: Micros
    end: Micros


class Switch(NamedTuple):
    """A link that goes up or down."""

    time: Micros
    a: str
    b: str
    up: bool
    line: int


def read_rows(
    parse: Callable[[Iterable[str], str, Micros], Iterator[Encounter]], path: Path, options: ContactOptions
) -> ReadContacts:
    """A format that lists intervals."""
    with opened(path) as stream:
        found = list(parse(lines(stream, str(path)), str(path), options.tail))
    return _numbered(found, str(path), options)


# Haggle.


def haggle_rows(lines: Iterable[str], where: str, tail: Micros) -> Iterator[Encounter]:
    for here, _, fields in rows(lines, where):
        if not 4 <= len(fields) <= 6:
            raise FileError(here, f"has {len(fields)} fields; a row is id1 id2 start end count gap")
        a, b = _pair(name_of(fields[0], here, "id1"), name_of(fields[1], here, "id2"), here)
        start, end = time_of(fields[2], here, "start"), time_of(fields[3], here, "end")
        for what, text in zip(("count", "gap"), fields[4:], strict=False):
            number_of(text, here, what)
        if end < start:
            raise FileError(here, f"ends at {fields[3]}, before its start at {fields[2]}")
        yield Encounter(a, b, start, end + tail)


# SocioPatterns.


def sociopatterns_rows(lines: Iterable[str], where: str, tail: Micros) -> Iterator[Encounter]:
    for here, _, fields in rows(lines, where):
        if len(fields) < 3:
            raise FileError(here, f"has {len(fields)} fields; a row is t i j")
        time = time_of(fields[0], here)
        if time < SLOT:
            raise FileError(
                here, f"t is {fields[0]}; a contact covers the 20 s up to t, so t is 20 s or later"
            )
        a, b = _pair(name_of(fields[1], here, "i"), name_of(fields[2], here, "j"), here)
        yield Encounter(a, b, time - SLOT, time + tail)


# The ONE.


def read_one(path: Path, options: ContactOptions) -> ReadContacts:
    with opened(path) as stream:
        switches = _one_switches(lines(stream, str(path)), str(path))
        found = _intervals(switches, str(path), options, either_side=True)
    return _numbered(found, str(path), options)


def _one_switches(lines: Iterable[str], where: str) -> Iterator[Switch]:
    before = 0
    for here, line, fields in rows(lines, where):
        if len(fields) != 5 or fields[1] != "CONN" or fields[4] not in ("up", "down"):
            raise FileError(here, f"{shown(' '.join(fields))}; a row is time CONN a b up|down")
        time = time_of(fields[0], here)
        if time < before:
            raise FileError(here, f"time {fields[0]} comes after a later one; rows are sorted by time")
        before = time
        a, b = _pair(name_of(fields[2], here), name_of(fields[3], here), here)
        yield Switch(time, a, b, fields[4] == "up", line)


def write_one(plan: ContactPlan, path: Path) -> None:
    if plan.directed:
        raise FileError(str(path), "The ONE's links have both directions; this plan is directed")
    save_lines(path, (f"{seconds_text(time)} CONN {a} {b} {state}" for time, state, a, b in _changes(plan)))


def _changes(plan: ContactPlan) -> list[tuple[Micros, str, int, int]]:
    """`(time, down or up, sender, receiver)`, sorted: at one instant links go down before others come up."""
    pairs = list(zip(plan.sender.tolist(), plan.receiver.tolist(), strict=True))
    ups = [(time, "up", a, b) for time, (a, b) in zip(plan.start.tolist(), pairs, strict=True)]
    downs = [(time, "down", a, b) for time, (a, b) in zip(plan.end.tolist(), pairs, strict=True)]
    return sorted(ups + downs)  # "down" < "up"


# Our own plan.


def read_plan(path: Path, options: ContactOptions) -> ReadContacts:
    where = str(path)
    with opened(path) as stream:
        text = [line.strip() for line in lines(stream, where)]
    head = next((_fields(line) for line in text if line and not line.startswith("#")), [])
    counts = [int(count[1]) for line in text if (count := _COUNT.fullmatch(line))]
    if not head and not counts:
        raise FileError(where, "is empty; expected rows time,i,j,up|down")
    # Stable: at one instant the file's order counts.
    switches = sorted(_plan_switches(text, where), key=lambda switch: switch.time)
    found = _intervals(switches, where, options)
    highest = max((int(number) for s in switches for number in (s.a, s.b)), default=-1)
    found_nodes = max([highest + 1, *counts])
    limit = NODES_MAX if options.nodes is None else options.nodes
    if found_nodes > limit:
        raise FileError(where, f"has nodes up to {found_nodes - 1}; 0 to {limit - 1} exist")
    nodes = found_nodes if options.nodes is None else options.nodes
    names = [str(number) for number in range(nodes)]
    return _planned(found, names, nodes, where, directed=head == _ONE_WAY)


def _plan_switches(lines: Iterable[str], where: str) -> Iterator[Switch]:
    """Rows as they stand. Where links work both ways the smaller number comes first."""
    first, directed = True, False
    for line, text in enumerate(lines, 1):
        here, fields = f"{where}:{line}", _fields(text)
        if not text or text.startswith("#"):
            continue
        if first and fields in (_BOTH_WAYS, _ONE_WAY):
            first, directed = False, fields == _ONE_WAY
            continue
        first = False
        if len(fields) != 4 or fields[3] not in ("up", "down"):
            raise FileError(here, f"{shown(text)}; a row is time,i,j,up|down")
        time = time_of(fields[0], here)
        pair = _pair(_node(fields[1], here), _node(fields[2], here), here)
        a, b = pair if directed else sorted(pair)
        yield Switch(time, str(a), str(b), fields[3] == "up", line)


def write_plan(plan: ContactPlan, path: Path) -> None:
    header = ",".join(_ONE_WAY if plan.directed else _BOTH_WAYS)
    rows = (f"{seconds_text(time)},{a},{b},{state}" for time, state, a, b in _changes(plan))
    save_lines(path, [f"# nodes: {plan.nodes}", header, *rows])


def _fields(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")]


def _node(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and int(text) < NODES_MAX):
        raise FileError(where, f"node is {shown(text)}; it is a number from 0 to {NODES_MAX - 1}")
    return int(text)


# From contacts under names to a plan.


Name = TypeVar("Name", str, int)


def _pair(a: Name, b: Name, where: str) -> tuple[Name, Name]:
    if a == b:
        raise FileError(where, f"node {a} is in contact with itself")
    return a, b


def _intervals(
    switches: Iterable[Switch],
    where: str,
    options: ContactOptions,
    *,
    either_side: bool = False,
) -> list[Encounter]:
    """From switches in order of time to intervals.

    `(a, b)` and `(b, a)` are different links: order the pair first if they mean the same. With `either_side`,
    a down that names the pair in the other order is accepted if only that order is up.
    """
    standing: dict[tuple[str, str], tuple[Micros, int]] = {}
    went_down: dict[tuple[str, str], Micros] = {}
    found: list[Encounter] = []
    last = 0
    for time, a, b, up, line in switches:
        last = max(last, time)
        pair = (a, b)
        if up:
            since = standing.setdefault(pair, (time, line))
            if since[0] != time:  # the same row twice is tolerated
                raise FileError(f"{where}:{line}", f"{a} {b} goes up but is up since line {since[1]}")
            continue
        if pair not in standing and either_side and (b, a) in standing:
            pair = (b, a)
        if pair in standing:
            start, _ = standing.pop(pair)
            went_down[pair] = time
            found.append(Encounter(*pair, start, time + options.tail))
        elif went_down.get(pair) != time:
            raise FileError(f"{where}:{line}", f"{a} {b} goes down but is not up")
    for (a, b), (start, line) in standing.items():
        if options.duration is None:
            raise FileError(
                f"{where}:{line}", f"{a} {b} goes up and never down; add a row with down or state a duration"
            )
        found.append(Encounter(a, b, start, max(last, options.duration)))
    return found


def _numbered(encounters: list[Encounter], where: str, options: ContactOptions) -> ReadContacts:
    """The plan, with node numbers in the order of the names."""
    if not encounters:
        raise FileError(where, "holds no contact")
    names = sorted({e.a for e in encounters} | {e.b for e in encounters}, key=name_order)
    if options.nodes is not None and len(names) > options.nodes:
        raise FileError(where, f"has {len(names)} nodes; {options.nodes} are allowed")
    return _planned(encounters, names, options.nodes or len(names), where, directed=False)


def _planned(
    encounters: list[Encounter], names: list[str], nodes: int, where: str, *, directed: bool
) -> ReadContacts:
    """The plan for given names; a name's number is its position."""
    number = {name: k for k, name in enumerate(names)}
    rows = [(number[e.a], number[e.b], e.start, e.end) for e in encounters]
    # The plan's joining works in 64 bits with span × pairs; only a file with an absurd time gets near that.
    span = max((e.end for e in encounters), default=0) - min((e.start for e in encounters), default=0) + 1
    pairs = len({(e.a, e.b) for e in encounters})
    if span * pairs > _INT64_MAX:
        raise FileError(
            where, f"spans {seconds_text(span)} s with {pairs} pairs, too much for one plan; split it"
        )
    return ReadContacts(ContactPlan.of(nodes, rows, directed=directed), names)
