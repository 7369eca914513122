"""From bytes to lines: the first step of reading any text format.

Every file may be gzipped (detected by its first two bytes). Errors at this level (no such file, a truncated
archive, bytes that are no UTF-8, a line that is too long) are a `FileError` with the place.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from roamcast.errors import FileError

# One row of a table. Chosen by us: a longer line belongs to a file of another kind (or a gzip bomb).
ROW_BYTES_MAX = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
