"""Paths in XML: SUMO's floating car data, and GPX.

**FCD**: `<fcd-export>` with a `<timestep time>` per step and a `<vehicle id x y>` in each. A vehicle that is
missing from a step was absent: it left, or stood in a place the simulation does not show; its path has a gap.
Steps increase in time. Persons and containers are not vehicles and are skipped. The file does not say whether
it was made with `--fcd-output.geo`; if it was, ask for `geographic=True`.

**GPX** 1.1 (and 1.0) tracks: a file, or a folder with one file per device. One node per track: the first
track of a file is named as the file, the second `name#2`, and so on. GPX begins a new track segment where
reception was lost, so between segments there is a gap. Track points need a time; one without zone is UTC, as
the schema says. Times increase along a track. Routes and waypoints are skipped.

Untrusted XML is read as a stream: each element is yielded when it ends, and then dropped. A document type is
refused: neither format here has one, and entities can make XML expand without bound or read other files. The
parser also resolves no entity, opens no network connection and keeps libxml2's limits on depth and size.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Literal, TypeAlias

from lxml import etree

from roamcast.errors import FileError
from roamcast.units import SECOND, Micros
from roamcast.world.formats.fixes import Fix, FixStream, MotionOptions
from roamcast.world.formats.text import (
    SECONDS_MAX,
    damage_as_file_error,
    name_of,
    opened,
    place_of,
    shown,
    time_of,
)

_CHUNK = 1 << 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

XmlEvent: TypeAlias = tuple[Literal["start", "end"], str, "etree._Element"]


def fcd(path: Path, options: MotionOptions) -> Iterator[FixStream]:
    with opened(path) as stream:
        fixes = parse_fcd(stream, str(path), geographic=options.geographic)
        yield FixStream(str(path), fixes, options.geographic)


def parse_fcd(stream: IO[bytes], where: str, *, geographic: bool = False) -> Iterator[Fix]:
    step, time = -1, -1  # the number of the current step and its time
    inside = False
    seen: dict[str, int] = {}  # the last step of each vehicle
    for event, name, element in elements(stream, where, root="fcd-export"):
        if name == "timestep":
            inside = event == "start"
            if inside:
                here = line_of(element, where)
                before, time = time, time_of(_attribute(element, "time", here), here)
                if time <= before:
                    raise FileError(here, f"timestep {element.get('time')} comes after a later or equal one")
                step += 1
        elif name == "vehicle" and event == "end":
            here = line_of(element, where)
            if not inside:
                raise FileError(here, "vehicle outside a timestep")
            node = name_of(_attribute(element, "id", here), here, "vehicle id")
            x, y = _attribute(element, "x", here), _attribute(element, "y", here)
            place = place_of(x, y, here, geographic=geographic)
            returns = seen.get(node, step) < step - 1
            seen[node] = step
            yield Fix(node, time, *place, line_number(element), returns)


def _attribute(element: "etree._Element", name: str, where: str) -> str:
    value = element.get(name)
    if value is None:
        raise FileError(where, f"{local_name(element)} has no attribute {name}")
    return str(value).strip()


def gpx(path: Path, _: MotionOptions) -> Iterator[FixStream]:
    for file in sorted(path.glob("*.gpx")) if path.is_dir() else [path]:
        name = name_of(file.name.removesuffix(".gz").removesuffix(".gpx"), str(file), "file name")
        with opened(file) as stream:
            yield FixStream(str(file), parse_gpx(stream, name, str(file)), geographic=True)


def parse_gpx(stream: IO[bytes], name: str, where: str) -> Iterator[Fix]:
    """The fixes of a GPX file, in degrees: `x` is the longitude, `y` the latitude."""
    track, point = 0, False
    before: Micros | None = None  # of this track
    stamp: str | None = None
    segment_begins = False
    for event, tag, element in elements(stream, where, root="gpx"):
        match tag, event:
            case "trk", "start":
                track += 1
                before = None
            case "trkseg", "start":
                segment_begins = True
            case "trkpt", "start":
                point, stamp = True, None
            case "time", "end" if point:
                stamp = (element.text or "").strip()
            case "trkpt", "end":
                point = False
                here = line_of(element, where)
                if track == 0:
                    raise FileError(here, "trkpt outside a trk")
                if stamp is None:
                    raise FileError(here, "trkpt has no time; a path needs one per point")
                time = _time(stamp, here)
                if before is not None and time < before:
                    raise FileError(here, f"time {stamp} comes after a later one; a track's times rise")
                degrees = str(element.get("lon", "")), str(element.get("lat", ""))
                longitude, latitude = place_of(*degrees, here, geographic=True)
                returns = segment_begins and before is not None
                before, segment_begins = time, False
                node = name if track == 1 else f"{name}#{track}"
                yield Fix(node, time, longitude, latitude, line_number(element), returns)


def _time(text: str, where: str) -> Micros:
    try:
        if "T" not in text:
            raise ValueError(text)
        stamp = datetime.fromisoformat(text)
        since = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError) as problem:
        raise FileError(
            where, f"time is {shown(text)}; expected ISO 8601 such as 2026-05-22T07:00:00Z"
        ) from problem
    time = since // timedelta(microseconds=1)
    if not 0 <= time <= SECONDS_MAX * SECOND:
        raise FileError(where, f"time is {text}; times are 1970 or later")
    return time


def elements(stream: IO[bytes], where: str, *, root: str) -> Iterator[XmlEvent]:
    """`(start or end, name without namespace, element)` in document order.

    An element is complete when it ends, except for its children: those were yielded and dropped before.
    """
    parser = etree.XMLPullParser(
        events=("start", "end"),
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    begun = False
    try:
        while True:
            with damage_as_file_error(where):
                chunk = stream.read(_CHUNK)
            if chunk:
                parser.feed(chunk)
            else:
                parser.close()
            for event, element in parser.read_events():
                assert isinstance(element, etree._Element), "only start and end were asked for"
                name = local_name(element)
                if not begun:
                    _check_root(element, name, root, where)
                    begun = True
                yield ("start" if event == "start" else "end"), name, element
                if event == "end":
                    _drop_children(element)
            if not chunk:
                return
    except etree.XMLSyntaxError as problem:
        text = str(problem.msg or problem).split("\n")[0]
        raise FileError(
            f"{where}:{problem.lineno or 1}", f"is damaged, truncated or hostile XML ({text})"
        ) from problem


def local_name(element: "etree._Element") -> str:
    """Without the namespace. Not `QName`: that refuses namespaces which the parser lets through."""
    return str(element.tag).rpartition("}")[2]


def line_number(element: "etree._Element") -> int:
    line: object = element.sourceline
    return line if isinstance(line, int) else 0


def line_of(element: "etree._Element", where: str) -> str:
    return f"{where}:{line_number(element)}"


def _check_root(element: "etree._Element", name: str, root: str, where: str) -> None:
    if element.getroottree().docinfo.internalDTD is not None:
        raise FileError(where, "has a document type (DOCTYPE); such XML is not read")
    if name != root:
        raise FileError(line_of(element, where), f"root element is {name}; expected {root}")


def _drop_children(element: "etree._Element") -> None:
    """Free what has been read. An ended element is still attached to its parent: drop its elder siblings."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]
