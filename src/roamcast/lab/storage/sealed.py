"""Tables and manifests in storage: whole or not there, and read only as they were written.

A table is a Parquet file. Whoever writes several files writes last a manifest that names them, each with its
rows, size and digest (`SealedFile`); a file that no manifest names does not count. A manifest carries a
digest of itself. What was lost, cut or changed since is noticed before anything is computed from it, and can
be set aside.
"""

import hashlib
import re
import shutil
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from roamcast.errors import FileError, InputError
from roamcast.lab.storage.storage import Storage

READERS = 8  # files read at a time; chosen by us, for object stores far away
CLAIM = "claim"  # the folder for who is writing (`claim.py`)
ASIDE = "aside"  # the folder for what was no longer as it had been written
Manifest = TypeVar("Manifest")


class SealedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest says of a file."""

    rows: int
    size: int
    sha256: str

    def check(self, name: str, data: bytes) -> None:
        """A `FileError` if this is not the content that was written."""
        self.check_size(name, len(data))
        if _digest(data) != self.sha256:
            raise FileError(name, "has not the digest that its manifest says")

    def check_size(self, name: str, size: int | None) -> None:
        if size is None:
            raise FileError(name, "is missing")
        if size != self.size:
            raise FileError(name, f"has {size} octets; its manifest says {self.size}")


def put_table(
    storage: Storage, file: str, table: pa.Table, lineage: Mapping[str, str] | None = None
) -> SealedFile:
    """Write a table, instead of an earlier one. `lineage`: where it comes from, for the file's metadata."""
    if lineage:
        metadata: dict[Any, Any] = {**(table.schema.metadata or {}), **lineage}
        table = table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data = sink.getvalue()
    storage.write(file, data)
    return SealedFile(rows=len(table), size=len(data), sha256=_digest(data))


def table_in(
    storage: Storage, file: str, sealed: SealedFile | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """The table of a file, compared with what its manifest says if there is one."""
    data = storage.read(file) if sealed is None else checked(storage, file, sealed)
    try:
        found = pq.ParquetFile(pa.BufferReader(data)).read(columns)
    except (pa.ArrowException, ValueError) as error:
        reason = re.split(r"[\n;]", str(error))[0]
        raise FileError(storage.name(file), f"is no Parquet file: {reason}") from error
    if sealed is not None and len(found) != sealed.rows:
        raise FileError(storage.name(file), f"has {len(found)} rows; its manifest says {sealed.rows}")
    return found


_compared: dict[str, tuple[int, ...]] = {}  # by file of this machine: how it was when its content was right


def checked(storage: Storage, file: str, sealed: SealedFile) -> bytes:
    """The content of a file, if it is what was written. A file of this machine is compared once, as long as
    the system says that nobody touched it."""
    seen = storage.stamp(file)
    data = storage.read(file)
    if seen is None or _compared.get(storage.name(file)) != seen:
        sealed.check(storage.name(file), data)
        if seen is not None:
            _compared[storage.name(file)] = seen
    return data


def check_all(storage: Storage, files: Iterable[tuple[str, SealedFile]]) -> None:
    """The same of many; a `FileError` for the first that is not what was written."""
    names = {
        file: sealed for file, sealed in files if _compared.get(storage.name(file), ()) != storage.stamp(file)
    }
    with ThreadPoolExecutor(READERS) as pool:
        deque(pool.map(lambda file: checked(storage, file, names[file]), names), maxlen=0)


def put_sure(storage: Storage, file: str, data: bytes) -> None:
    """Write what others depend on, and look whether it is there: a store may lose a write without a word."""
    storage.write(file, data)
    if storage.read_if_there(file) != data:
        raise FileError(storage.name(file), "was written, but the storage does not have it")


class _Signed(msgspec.Struct, frozen=True):
    """A manifest as it is written. The digest is that of its own text."""

    sha256: str
    segment: msgspec.Raw


def put_manifest(storage: Storage, file: str, manifest: Any) -> None:
    """Write it after all files that it names: with it they are there."""
    text = msgspec.json.encode(manifest)
    put_sure(storage, file, msgspec.json.encode(_Signed(_digest(text), msgspec.Raw(text))))


def manifest_in(storage: Storage, file: str, kind: type[Manifest]) -> Manifest:
    """A manifest, or a `FileError` if it is not as it was written."""
    data = storage.read(file)
    try:
        signed = msgspec.json.decode(data, type=_Signed)
        if _digest(bytes(signed.segment)) != signed.sha256:
            raise FileError(storage.name(file), "has not the digest that it was written with")
        return msgspec.json.decode(signed.segment, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = "is empty" if not data else f"is no manifest: {error}"
        raise FileError(storage.name(file), problem) from error


def set_aside(storage: Storage, file: str) -> None:
    """Move a file to where nobody reads it, and somebody may still look at it."""
    storage.move(file, f"{ASIDE}/{file}")


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder on this disk that appears whole when the block ends, in place of an earlier one; if the block
    fails, the earlier one stays. Gives the folder to write into."""
    unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex}.unfinished")
    earlier = unfinished.with_suffix(".earlier")
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        if target.exists():
            target.rename(earlier)
        unfinished.rename(target)
    except OSError as error:
        raise FileError(str(target), f"cannot be written: {error.strerror or error}") from error
    finally:
        if earlier.exists() and not target.exists():
            earlier.rename(target)
        for left in (unfinished, earlier):
            shutil.rmtree(left, ignore_errors=True)


def check_is_free(storage: Storage) -> None:
    """An `InputError` unless the folder is new or empty."""
    if storage.path is not None and storage.path.exists() and not storage.path.is_dir():
        raise InputError(str(storage), "is a file; allowed: a new or empty folder")
    if found := next((file for file in storage.files() if not file.startswith(f"{CLAIM}/")), None):
        raise InputError(str(storage), f"holds something else ({found}); allowed: a new or empty folder")


def _digest(data: bytes | pa.Buffer) -> str:
    return hashlib.sha256(data).hexdigest()
