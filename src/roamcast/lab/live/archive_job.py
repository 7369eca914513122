"""`roamcast archive`: the events of live traces, kept, and asked for by filter text.

The producer are the segments. A node's trace has each of its publications with topic, type and attributes,
which is all that a filter of the archive can ask for; so nothing else has to be kept on a device or sent over
the air. Payloads are in no trace, and so in no archive.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from roamcast.errors import FileError, InputError, RoamcastError
from roamcast.event import Event, EventClass
from roamcast.lab.live.archive import Archived, additions, archive, select
from roamcast.lab.live.collect import Listed, listed
from roamcast.lab.spark.session import with_session
from roamcast.lab.storage import Storage
from roamcast.runtime.live.report.segments import parse_segment
from roamcast.trace import Published
from roamcast.units import SECOND, Micros

_attributes = msgspec.json.Decoder(dict[str, bool | int | float | str | None]).decode


@dataclass
class Added:
    events: int = 0
    segments: int = 0
    refused: list[str] = field(default_factory=list)  # file and reason


@dataclass(frozen=True)
class Found:
    """Events of an archive, oldest first."""

    rows: list[dict[str, Any]]

    def to_json(self) -> str:
        return msgspec.json.encode(self.rows).decode()

    def to_text(self) -> str:
        lines = [
            " ".join(
                [
                    _text(row["t"]),
                    f"{row['publisher']}:{row['sequence']}",
                    *filter(None, (row["topic"], row["type"])),
                    msgspec.json.encode(row["attributes"]).decode(),
                ]
            )
            for row in self.rows
        ]
        return "\n".join([*lines, f"{len(self.rows)} events"])


def add_segments(folder: str, out: str) -> Added:
    """Add the publications of all segments in a folder that are not in the archive yet."""
    source, target = Storage.open(folder), Storage.open(out)
    known = {name for addition in additions(target) for name in addition.sources}
    result = Added()
    fresh = [one for one in listed(source) if str(one.name) not in known]
    if fresh:
        names: list[str] = []  # filled as the events are taken
        added = archive(_events(source, fresh, names, result), target, names)
        result.segments, result.events = len(names), sum(added.files.values())
    return result


def query(
    folder: str,
    text: str,
    *,
    since: str | None = None,
    until: str | None = None,
    limit: int = 1_000,
    master: str | None = None,
) -> Found:
    """The events that a subscription with this text would have got in that time; at most `limit`."""
    bounds = []
    if since is not None:
        bounds.append(f"t >= {instant(since, '--since')}")
    if until is not None:
        bounds.append(f"t < {instant(until, '--until')}")

    def work(spark: Any) -> Found:
        found = select(spark, folder, text).selectExpr("_event.*").drop("payload")
        for bound in bounds:
            found = found.where(bound)
        rows = found.orderBy("t", "publisher", "sequence").limit(limit).toArrow().to_pylist()
        return Found([{**row, "attributes": msgspec.json.decode(row["attributes"])} for row in rows])

    return with_session(master, work)


def instant(text: str, where: str) -> Micros:
    """A time of the command line as Unix time; without a zone it is UTC."""
    try:
        if text.replace(".", "", 1).isdecimal():
            return round(float(text) * SECOND)
        parsed = datetime.fromisoformat(text)
        return round(parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp() * SECOND)
    except (ValueError, OverflowError):
        allowed = "2026-05-01, 2026-05-01T12:30 or Unix seconds"
        raise InputError(where, f"is {text!r}; allowed: {allowed}") from None


def _events(source: Storage, fresh: list[Listed], names: list[str], result: Added) -> Iterator[Archived]:
    for one in fresh:
        try:
            segment = parse_segment(source.read(one.file), source.name(one.file))
            found = [record for record in segment.records() if isinstance(record, Published)]
            made = [Archived(record.t + segment.head.wall, _event(record)) for record in found]
        except FileError as error:
            result.refused.append(str(error))
            continue
        except (RoamcastError, msgspec.MsgspecError, ValueError) as error:
            result.refused.append(f"{source.name(one.file)}: holds an event that is none: {error}")
            continue
        names.append(str(one.name))
        yield from made


def _event(record: Published) -> Event:
    return Event(
        record.publisher,
        record.sequence,
        _attributes(record.attributes),
        topic=record.topic,
        type=record.type,
        event_class=EventClass(record.event_class),
        lifetime=record.lifetime,
    )


def _text(t: Micros) -> str:
    return datetime.fromtimestamp(t / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
