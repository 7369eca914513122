"""GPX 1.1 (and 1.0) tracks: a file, or a folder with one file per device.

One node per track: the first track of a file is named as the file, the second `name#2`, and so on. GPX
begins a new track segment where reception was lost, so between segments there is a gap. Track points need a
time; one without zone is UTC, as the schema says. Times increase along a track. Routes and waypoints are
skipped.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

from roamcast.errors import FileError
from roamcast.units import SECOND, Micros
from roamcast.world.formats.motion.fixes import Fix, MotionOptions, Tracks
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.source import opened
from roamcast.world.formats.text.xml_events import elements, line_number, line_of
from roamcast.world.trajectory import Motion

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(path: Path, options: MotionOptions) -> Motion:
    tracks = Tracks()
    for file in sorted(path.glob("*.gpx")) if path.is_dir() else [path]:
        name = numbers.name_of(file.name.removesuffix(".gz").removesuffix(".gpx"), str(file), "file name")
        with opened(file) as stream:
            tracks.collect(parse_fixes(stream, name, str(file)), str(file))
    return tracks.motion(str(path), options, geographic=True)


def parse_fixes(stream: IO[bytes], name: str, where: str) -> Iterator[Fix]:
    """In degrees: `x` is the longitude, `y` the latitude."""
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
                longitude = numbers.longitude_of(str(element.get("lon", "")), here)
                latitude = numbers.latitude_of(str(element.get("lat", "")), here)
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
            where, f"time is {numbers.shown(text)}; expected ISO 8601 such as 2026-05-22T07:00:00Z"
        ) from problem
    time = since // timedelta(microseconds=1)
    if not 0 <= time <= numbers.SECONDS_MAX * SECOND:
        raise FileError(where, f"time is {text}; times are 1970 or later")
    return time
