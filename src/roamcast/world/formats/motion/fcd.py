"""SUMO floating car data: `<fcd-export>` with a `<timestep time>` per step and a `<vehicle id x y>` in each.

A vehicle that is missing from a step was absent: it left, or stood in a place the simulation does not show;
its path has a gap. Steps increase in time. Persons and containers are not vehicles and are skipped.
The file does not say whether it was made with `--fcd-output.geo`; if it was, ask for `geographic=True`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lxml import etree

from roamcast.errors import FileError
from roamcast.world.formats.motion.fixes import Fix, MotionOptions, Tracks
from roamcast.world.formats.text import numbers
from roamcast.world.formats.text.source import opened
from roamcast.world.formats.text.xml_events import elements, line_number, line_of, local_name
from roamcast.world.trajectory import Motion


def read(path: Path, options: MotionOptions) -> Motion:
    tracks = Tracks()
    with opened(path) as stream:
        tracks.collect(parse_fixes(stream, str(path), geographic=options.geographic), str(path))
    return tracks.motion(str(path), options, geographic=options.geographic)


def parse_fixes(stream: IO[bytes], where: str, *, geographic: bool = False) -> Iterator[Fix]:
    step, time = -1, -1  # the number of the current step and its time
    inside = False
    seen: dict[str, int] = {}  # the last step of each vehicle
    for event, name, element in elements(stream, where, root="fcd-export"):
        if name == "timestep":
            inside = event == "start"
            if inside:
                here = line_of(element, where)
                before, time = time, numbers.time_of(_attribute(element, "time", here), here)
                if time <= before:
                    raise FileError(here, f"timestep {element.get('time')} comes after a later or equal one")
                step += 1
        elif name == "vehicle" and event == "end":
            here = line_of(element, where)
            if not inside:
                raise FileError(here, "vehicle outside a timestep")
            node = numbers.name_of(_attribute(element, "id", here), here, "vehicle id")
            x, y = _attribute(element, "x", here), _attribute(element, "y", here)
            if geographic:
                place = numbers.longitude_of(x, here), numbers.latitude_of(y, here)
            else:
                place = numbers.metres_of(x, here, "x"), numbers.metres_of(y, here, "y")
            returns = seen.get(node, step) < step - 1
            seen[node] = step
            yield Fix(node, time, *place, line_number(element), returns)


def _attribute(element: "etree._Element", name: str, where: str) -> str:
    value = element.get(name)
    if value is None:
        raise FileError(where, f"{local_name(element)} has no attribute {name}")
    return str(value).strip()
