"""`roamcast collect`: the segments of many nodes brought together, each checked on the way.

A segment is a plain file that never changes once it has its name, so any way of copying files would do
(rsync, scp, a shared folder). What this adds: only whole segments arrive, under their names and whole at
once; what is there already is not copied again; what is damaged is named. Segments do not travel over the
mesh itself: a trace is larger than the traffic that it describes, and would fill the air that it measures.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.errors import FileError, InputError
from roamcast.lab.storage import Storage
from roamcast.runtime.live.report.segments import SegmentName, parse_segment


class Listed(NamedTuple):
    """A segment in the folder."""

    name: SegmentName
    file: str
    size: int


@dataclass
class Collected:
    copied: int = 0
    there_before: int = 0
    refused: list[str] = field(default_factory=list)  # file and reason


def collect(sources: Iterable[str], target: str) -> Collected:
    """Copy the whole segments below each source into `target`, which may fill up over many calls."""
    into = Storage.open(target)
    there = {name.rpartition("/")[2] for name in into.files()}
    result = Collected()
    for uri in sources:
        source = Storage.open(uri)
        if source.path is not None and not source.path.is_dir():
            raise FileError(str(source), "is no folder; expected one that a node writes its trace into")
        if str(source) == str(into):
            raise InputError(str(source), "is the target itself; allowed: another folder")
        for file in source.files():
            name = SegmentName.of(file)
            if name is None:
                continue
            if str(name) in there:
                result.there_before += 1
                continue
            try:
                data = source.read(file)  # may be gone: the node keeps to its bound meanwhile
                parse_segment(data, source.name(file))
            except FileError as error:
                result.refused.append(str(error))
                continue
            into.write(str(name), data)
            there.add(str(name))
            result.copied += 1
    return result


def listed(folder: Storage) -> list[Listed]:
    """The segments in a folder, at any depth, by time. Of one that lies there twice only one counts."""
    found = {}
    for file, size in folder.files().items():
        name = SegmentName.of(file)
        if name is not None:
            found[name.id] = Listed(name, file, size)
    return sorted(found.values())
