"""Subscriptions that follow a position: what happens within so many metres of where this program is.

A subscription asks for a circle that is wider than what is wanted, and is renewed when the position has left
the middle of it. So a person who walks, and a receiver that jitters, cost the mesh few subscriptions, and
nothing that is near enough is missed.

    47.3769,8.5417      a place that stays
    gpsd                the receiver of this device; gpsd:HOST:PORT for one elsewhere
    track.json          a file that another program writes: two numbers, or JSON with `lat` and `lon`
"""

import asyncio
import logging
import math
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from roamcast.errors import FileError, InputError

if TYPE_CHECKING:
    from roamcast.filter import Filter

logger = logging.getLogger("roamcast.client")

Position: TypeAlias = tuple[float, float]
"""Latitude and longitude, degrees."""

# Chosen by us.
MARGIN = 0.25  # of the radius: how far a position moves until the subscription follows
LOOK_SECONDS = 1.0  # between two looks at a file
PATIENCE = 3.0  # seconds without any position until somebody is told
RETRY_SECONDS = 5.0  # until gpsd is asked again
GPSD_PORT = 2947
LINE_BYTES_MAX = 65_536  # of gpsd
FILE_BYTES_MAX = 4_096

_PAIR = re.compile(r"\s*(-?\d{1,3}(?:\.\d+)?)\s*[,; ]\s*(-?\d{1,3}(?:\.\d+)?)\s*")


class _Said(msgspec.Struct):
    """A report of gpsd, or what a file says."""

    lat: float | None = None
    lon: float | None = None


class FollowedCircle:
    """The circle that a subscription asks for."""

    def __init__(self, wanted: "Filter | None", metres: float) -> None:
        if not (math.isfinite(metres) and metres > 0):
            raise InputError("near", f"is {metres}; allowed: metres above 0")
        self._wanted = wanted
        self._metres = metres
        self._center: Position | None = None

    def around(self, latitude: float, longitude: float) -> "Filter | None":
        """The filter for a new position; None where the one before still serves."""
        from roamcast.filter import Filter
        from roamcast.filter.expression import Within
        from roamcast.filter.place import place_test

        place = checked_position(latitude, longitude)
        margin = self._metres * MARGIN
        if self._center is not None and place_test(Within("lat", "lon", *self._center, margin))(*place):
            return None
        self._center = place
        circle = Filter(Within("lat", "lon", *place, self._metres + margin))
        return circle if self._wanted is None else self._wanted & circle


def checked_position(latitude: float, longitude: float) -> Position:
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        problem = f"is {latitude}, {longitude}; allowed: latitudes to 90, longitudes to 180 degrees"
        raise InputError("position", problem)
    return float(latitude), float(longitude)


def positions(source: str) -> AsyncGenerator[Position, None]:
    """Each position that a source has, as it comes; `InputError` for a source that can be none."""
    if (pair := _PAIR.fullmatch(source)) is not None:
        return _fixed(checked_position(float(pair[1]), float(pair[2])))
    if source == "gpsd" or source.startswith("gpsd:"):
        host, _, port = source.removeprefix("gpsd").removeprefix(":").rpartition(":")
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise InputError("position", f"is {source[:80]!r}; allowed: gpsd, or gpsd:HOST:PORT")
        return _from_gpsd(host.strip("[]") or "127.0.0.1", int(port or GPSD_PORT))
    return _from_file(Path(source))


async def first_of(places: AsyncGenerator[Position, None], source: str) -> Position:
    """The first position. Nobody sees a receiver without a fix, or a file without a position: it is said."""
    said = "no position from %s yet; waiting for one"
    telling = asyncio.get_running_loop().call_later(PATIENCE, logger.warning, said, source)
    try:
        return await anext(places)
    finally:
        telling.cancel()


async def _fixed(place: Position) -> AsyncGenerator[Position, None]:
    yield place


async def _from_file(path: Path) -> AsyncGenerator[Position, None]:
    before = b""
    if not path.exists():
        raise FileError(str(path), "no such file; allowed: LAT,LON, gpsd, or a file with a position")
    while True:
        try:
            with path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX)
        except OSError:
            data = b""  # it is being written anew
        if data != before and (place := position_in(data)) is not None:
            yield place
        before = data
        await asyncio.sleep(LOOK_SECONDS)


async def _from_gpsd(host: str, port: int) -> AsyncGenerator[Position, None]:
    """Without a fix nothing comes; a gpsd that is not there, or goes, is asked again."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port, limit=LINE_BYTES_MAX)
        except OSError:
            await asyncio.sleep(RETRY_SECONDS)
            continue
        try:
            writer.write(b'?WATCH={"enable":true,"json":true};\n')
            while line := await reader.readline():
                if b'"TPV"' in line and (place := position_in(line)) is not None:
                    yield place
        except (OSError, ValueError):  # it is gone, or a line is longer than any report
            pass
        finally:
            writer.close()
        await asyncio.sleep(RETRY_SECONDS)


def position_in(data: bytes) -> Position | None:
    """What a file or a report says; None where it is no position."""
    try:
        if (pair := _PAIR.fullmatch(data.decode())) is not None:
            return checked_position(float(pair[1]), float(pair[2]))
        said = msgspec.json.decode(data, type=_Said)
        if said.lat is None or said.lon is None:
            return None
        return checked_position(said.lat, said.lon)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InputError):
        return None
