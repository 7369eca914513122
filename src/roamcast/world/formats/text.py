"""From bytes to lines to values, and back: the first step of reading any text format, with the place of every
fault.

Every file may be gzipped (detected by its first two bytes). Whatever is wrong with a file is a `FileError`
with the place: no such file, a truncated archive, bytes that are no UTF-8, a line that is too long, a field
that is no number.

Numbers are read exactly and within bounds. Times become integer microseconds without passing through a float:
`0.1` is 100000, and reading back what was written gives the same value. More than six decimals are rounded to
the nearest microsecond. What Python accepts but no recording means (`nan`, `inf`, `1_000`, other scripts'
digits) is refused.
"""

import gzip
import math
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import ROUND_HALF_EVEN, Context
from pathlib import Path
from typing import IO, cast

from roamcast.errors import FileError
from roamcast.units import SECOND, Micros

# One row of a table. Chosen by us: a longer line belongs to a file of another kind (or a gzip bomb).
ROW_BYTES_MAX = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# The year 5138 as a Unix time. A larger number is most often a file in milliseconds.
SECONDS_MAX = 10**11
METRES_MAX = 1e9
NAME_LENGTH_MAX = 200

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})(?:[eE][+-]?[0-9]{1,3})?")
_EXACT = Context(prec=200, rounding=ROUND_HALF_EVEN)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed where it is gzipped."""
    with damage_as_file_error(str(path)), path.open("rb") as raw:
        is_gzip = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        if is_gzip:
            with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
                yield cast(IO[bytes], unpacked)
        else:
            yield raw


@contextmanager
def damage_as_file_error(where: str) -> Iterator[None]:
    """Errors of reading files and archives, as `FileError` with one line each."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as problem:
        raise FileError(where, f"is a damaged or truncated archive ({problem})") from problem
    except OSError as problem:
        raise FileError(where, f"cannot be read: {problem.strerror or problem}") from problem


def lines(stream: IO[bytes], where: str, *, bytes_max: int = ROW_BYTES_MAX) -> Iterator[str]:
    """Lines of text, without their ends. Line k of the answer is line k of the file."""
    number = 0
    while True:
        with damage_as_file_error(where):
            data = stream.readline(bytes_max + 1)
        if not data:
            return
        number += 1
        if len(data) > bytes_max:
            raise FileError(f"{where}:{number}", f"is a line of more than {bytes_max} bytes")
        if number == 1:
            data = data.removeprefix(_BYTE_ORDER_MARK)
        try:
            yield data.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as problem:
            raise FileError(f"{where}:{number}", f"is not UTF-8 text (byte {problem.start + 1})") from problem


def rows(lines: Iterable[str], where: str) -> Iterator[tuple[str, int, list[str]]]:
    """`(place, line number, fields)` of rows separated by blanks; empty lines and `#` comments left out."""
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if fields and not fields[0].startswith("#"):
            yield f"{where}:{number}", number, fields


def time_of(text: str, where: str, what: str = "time") -> Micros:
    """Seconds in decimal notation, on the microsecond grid."""
    if text.isdigit() and text.isascii() and len(text) <= 12:
        time = int(text) * SECOND
    elif _NUMBER.fullmatch(text):
        scaled = _EXACT.create_decimal(text).scaleb(6, _EXACT)
        time = int(scaled.to_integral_value(context=_EXACT)) if scaled.adjusted() < 30 else 10**30
    else:
        raise FileError(where, f"{what} is {shown(text)}, not a number of seconds")
    if time < 0:
        raise FileError(where, f"{what} is {text}; times are 0 s or later")
    if time > SECONDS_MAX * SECOND:
        raise FileError(where, f"{what} is {text} s, beyond {SECONDS_MAX} s; is the file in milliseconds?")
    return time


def number_of(text: str, where: str, what: str) -> float:
    """A finite decimal number."""
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    if math.isinf(number):
        raise FileError(where, f"{what} is {shown(text)}, not a finite number")
    return number


def metres_of(text: str, where: str, what: str) -> float:
    metres = number_of(text, where, what)
    if abs(metres) > METRES_MAX:
        raise FileError(where, f"{what} is {text}; positions are metres between -1e9 and 1e9")
    return metres


def place_of(x: str, y: str, where: str, *, geographic: bool) -> tuple[float, float]:
    """Metres east and north; or longitude and latitude in degrees."""
    if not geographic:
        return metres_of(x, where, "x"), metres_of(y, where, "y")
    return _degrees_of(x, where, "longitude", 180), _degrees_of(y, where, "latitude", 90)


def _degrees_of(text: str, where: str, what: str, limit: int) -> float:
    degrees = number_of(text, where, what)
    if abs(degrees) > limit:
        raise FileError(where, f"{what} is {text}; it lies between -{limit} and {limit} degrees")
    return degrees


def name_of(text: str, where: str, what: str = "node") -> str:
    """A node's name: anything printable that is not empty."""
    if not text or len(text) > NAME_LENGTH_MAX or not text.isprintable():
        raise FileError(
            where, f"{what} is {shown(text)}; a name is 1 to {NAME_LENGTH_MAX} printable characters"
        )
    return text


def name_order(name: str) -> tuple[bool, int, str]:
    """The order in which names become node numbers: whole numbers by value, then texts."""
    is_number = name.isascii() and name.isdigit()
    return (not is_number, int(name) if is_number else 0, name)


def seconds_text(time: Micros) -> str:
    """Exact seconds, without needless zeros: 12500000 is `12.5`."""
    sign = "-" if time < 0 else ""
    whole, rest = divmod(abs(time), SECOND)
    return f"{sign}{whole}" + (f".{rest:06d}".rstrip("0") if rest else "")


def shown(text: str) -> str:
    """A piece of a file as it may appear in a one-line message."""
    return repr(text if len(text) <= 40 else text[:40] + "…")


def save_lines(path: Path, lines: Iterable[str]) -> None:
    """A file that appears whole or not at all: written under a temporary name beside `path`, then renamed. A
    name in `.gz` is compressed."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as raw:
            if path.suffix == ".gz":
                # No name and no clock in the header: the same motion gives the same bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                    packed.writelines(f"{line}\n".encode() for line in lines)
            else:
                raw.writelines(f"{line}\n".encode() for line in lines)
        os.replace(part, path)
    except OSError as problem:
        raise FileError(str(path), f"cannot be written: {problem.strerror or problem}") from problem
    finally:
        part.unlink(missing_ok=True)
