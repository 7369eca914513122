"""Our own contact plan: CSV rows `time,i,j,up|down`, in seconds and node numbers.

The header is `time,i,j,state` for links that work both ways (also meant where there is no header) or
`time,from,to,state` for one-way links. Rows may come in any order; rows of the same time are taken as they
stand. `i` and `j` are node numbers as the scenario counts them, so unlike recordings nothing is renumbered.
Lines that begin with `#` are comments; the writer's first line, `# nodes: 7`, keeps the count where the last
nodes never meet anyone. A link that is never taken down lasts until the scenario's duration.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from roamcast.errors import FileError
from roamcast.world.contacts import ContactPlan
from roamcast.world.formats.meetings.encounters import (
    ContactOptions,
    ReadContacts,
    Switch,
    intervals,
    planned,
)
from roamcast.world.formats.meetings.one_contacts import changes
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.saving import save_lines
from roamcast.world.formats.text.source import lines, opened

NODES_MAX = 1_000_000

_BOTH_WAYS = ["time", "i", "j", "state"]
_ONE_WAY = ["time", "from", "to", "state"]
_COUNT = re.compile(r"#\s*nodes:\s*([0-9]{1,7})\s*")


def read(path: Path, options: ContactOptions) -> ReadContacts:
    where = str(path)
    with opened(path) as stream:
        text = [line.strip() for line in lines(stream, where)]
    head = next((_fields(line) for line in text if line and not line.startswith("#")), [])
    counts = [int(count[1]) for line in text if (count := _COUNT.fullmatch(line))]
    if not head and not counts:
        raise FileError(where, "is empty; expected rows time,i,j,up|down")
    # Stable: at one instant the file's order counts.
    switches = sorted(parse_switches(text, where), key=lambda switch: switch.time)
    found = intervals(switches, where, options)
    highest = max((int(number) for s in switches for number in (s.a, s.b)), default=-1)
    limit = options.nodes if options.nodes is not None else NODES_MAX
    nodes = options.nodes if options.nodes is not None else max([highest + 1, *counts])
    if max([highest + 1, *counts]) > limit:
        raise FileError(
            where, f"has nodes up to {max([highest, *(n - 1 for n in counts)])}; 0 to {limit - 1} exist"
        )
    names = [str(number) for number in range(nodes)]
    return planned(found, names, nodes, where, directed=head == _ONE_WAY)


def parse_switches(lines: Iterable[str], where: str) -> Iterator[Switch]:
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
            raise FileError(here, f"{numbers.shown(text)}; a row is time,i,j,up|down")
        time = numbers.time_of(fields[0], here)
        a, b = _node(fields[1], here), _node(fields[2], here)
        if a == b:
            raise FileError(here, f"node {a} is in contact with itself")
        if not directed and a > b:
            a, b = b, a
        yield Switch(time, str(a), str(b), fields[3] == "up", line)


def write(plan: ContactPlan, path: Path) -> None:
    header = ",".join(_ONE_WAY if plan.directed else _BOTH_WAYS)
    rows = (f"{numbers.seconds_text(time)},{a},{b},{state}" for time, state, a, b in changes(plan))
    save_lines(path, [f"# nodes: {plan.nodes}", header, *rows])


def _fields(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")]


def _node(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and int(text) < NODES_MAX):
        raise FileError(where, f"node is {numbers.shown(text)}; it is a number from 0 to {NODES_MAX - 1}")
    return int(text)
