"""Files that appear whole or not at all."""

import gzip
import os
from collections.abc import Iterable
from pathlib import Path

from roamcast.errors import FileError


def save_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines under a temporary name beside `path`, then rename. A name in `.gz` is compressed."""
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
