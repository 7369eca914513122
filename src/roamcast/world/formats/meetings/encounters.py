"""Contacts under the names of a recording, and how they become a plan.

Some formats list intervals, some switch links up and down. Both end here as intervals, joined per pair: where
two devices each recorded the other (Haggle), the contact lasts as long as either side saw it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from roamcast.errors import FileError
from roamcast.units import Micros
from roamcast.world.contacts import ContactPlan
from roamcast.world.formats.text.numbers import name_order, seconds_text

_INT64_MAX = 2**63 - 1


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


def intervals(
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


def numbered(encounters: list[Encounter], where: str, options: ContactOptions) -> ReadContacts:
    """The plan, with node numbers in the order of the names."""
    if not encounters:
        raise FileError(where, "holds no contact")
    names = sorted({e.a for e in encounters} | {e.b for e in encounters}, key=name_order)
    if options.nodes is not None and len(names) > options.nodes:
        raise FileError(where, f"has {len(names)} nodes; {options.nodes} are allowed")
    return planned(encounters, names, options.nodes or len(names), where, directed=False)


def planned(
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
