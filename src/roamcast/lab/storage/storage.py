"""A folder of files by URI: local disk, S3, Google Cloud Storage, HDFS.

    data/out  file:///data/out          a local folder; the first is relative to the working directory
    s3://bucket/out  s3a://bucket/out   an object store that speaks S3
    gs://bucket/out  gcs://bucket/out   Google Cloud Storage
    hdfs://host:port/out                Hadoop; needs its client libraries on this machine

A file is whole or not there. On disks it is written under a hidden name, flushed, and renamed; an object
store shows an object only when all of it has arrived. Nothing else is promised: no renaming of folders, no
locks, no appending. So whoever writes several files writes last the one that says that they are all there.

Credentials and endpoints come from where each system's own tools look: for S3 `AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`, the
files in `~/.aws`, or the machine's own role. They are looked up in each process and never travel with a task.
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs

from roamcast.errors import FileError, InputError

ALLOWED = "allowed: a path, file:///…, s3://bucket/…, gs://bucket/… or hdfs://host:port/…"
SCHEMES = {"file": "file", "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "hdfs": "hdfs"}
CONNECT_SECONDS = 5.0  # chosen by us: a store that does not answer is reported, not waited for
CAUSE_LENGTH_MAX = 400  # Arrow lists every place where Hadoop could be; chosen by us
RETRY_SECONDS = 20.0  # for Google Cloud Storage; the library's own limit is 15 minutes
_UNFINISHED = "unfinished"
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")


@dataclass(frozen=True)
class Storage:
    """A folder. It need not exist: it does when a file is in it. Small and picklable; `open` makes it.

    Names of files are relative to it, with `/`. Names that begin with a dot are ours for unfinished files:
    no question shows them.
    """

    scheme: str  # file, s3, gs or hdfs
    authority: str  # host and port, for hdfs
    root: str  # an absolute path, or bucket and key

    @classmethod
    def open(cls, uri: "str | Path | Storage") -> "Storage":
        """The folder of a URI or path; an `InputError` if it cannot be one. Nothing is looked at yet."""
        if isinstance(uri, Storage):
            return uri
        text = str(uri)
        found = _URI.match(text)
        if found is None or isinstance(uri, Path):
            if not text:
                raise InputError("folder", f"is empty; {ALLOWED}")
            return cls("file", "", str(Path(text).absolute()))
        scheme = SCHEMES.get(found["scheme"].lower())
        if scheme is None:
            raise InputError(text, f"has the scheme {found['scheme']}; {ALLOWED}")
        parts = urlsplit(text)
        path = re.sub("/+", "/", unquote(parts.path)).rstrip("/")
        if scheme == "file":
            if parts.netloc not in ("", "localhost") or not path:
                raise InputError(text, "is no local folder; allowed: file:///path")
            return cls("file", "", path)
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise InputError(text, f"holds more than a place; {ALLOWED}, and credentials in the environment")
        if not parts.netloc:
            raise InputError(text, f"names no {'host' if scheme == 'hdfs' else 'bucket'}; {ALLOWED}")
        if scheme == "hdfs":
            return cls(scheme, parts.netloc, path or "/")
        return cls(scheme, "", parts.netloc + path)

    @classmethod
    def of_file(cls, uri: "str | Path | Storage") -> "tuple[Storage, str]":
        """The folder and the name of a file."""
        whole = cls.open(uri)
        folder, _, name = whole.root.rpartition("/")
        return cls(whole.scheme, whole.authority, folder or "/"), name

    def folder(self, name: str) -> "Storage":
        """A folder inside this one."""
        return Storage(self.scheme, self.authority, self._at(name))

    # Names.

    def __str__(self) -> str:
        return self.name()

    def name(self, file: str = "") -> str:
        """A file, or this folder, as a person writes it: in messages, and for `open`."""
        return (
            self._at(file) if self.scheme == "file" else f"{self.scheme}://{self.authority}{self._at(file)}"
        )

    def spark_name(self, file: str = "") -> str:
        """The same with its scheme, whatever Spark's default is."""
        return f"{self.scheme}://{self.authority}{self._at(file)}"

    @property
    def path(self) -> Path | None:
        """The folder on the local disk, if it is there."""
        return Path(self.root) if self.scheme == "file" else None

    # Questions.

    def files(self, folder: str = "") -> dict[str, int]:
        """The files below a folder, at any depth: name → size, sorted. None if the folder does not exist."""
        with self._errors(folder, "listed"):
            selector = fs.FileSelector(self._at(folder), recursive=True, allow_not_found=True)
            found = {
                info.path[len(self.root) :].lstrip("/"): info.size
                for info in self._filesystem.get_file_info(selector)
                if info.type == fs.FileType.File
            }
        return {name: found[name] for name in sorted(found) if not any(p[0] == "." for p in name.split("/"))}

    def exists(self, file: str) -> bool:
        with self._errors(file, "read"):
            return bool(self._filesystem.get_file_info(self._at(file)).type == fs.FileType.File)

    def read(self, file: str) -> bytes:
        """All of a file; a `FileError` if it is missing or cannot be read."""
        with self._errors(file, "read"), self._filesystem.open_input_file(self._at(file)) as opened:
            return opened.read()  # type: ignore[no-any-return]

    def read_if_there(self, file: str) -> bytes | None:
        try:
            return self.read(file)
        except FileError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise

    @contextmanager
    def opened(self, file: str) -> Iterator[pa.NativeFile]:
        """A file to read in parts, for what is larger than memory or only partly needed."""
        with self._errors(file, "read"), self._filesystem.open_input_file(self._at(file)) as opened:
            yield opened

    def stamp(self, file: str) -> tuple[int, ...] | None:
        """What changes when a file of this machine is written; None if there is none, or elsewhere."""
        if self.scheme != "file":
            return None
        with suppress(OSError):
            found = os.stat(self._at(file))
            return found.st_ino, found.st_size, found.st_mtime_ns
        return None

    # Changes.

    def write(self, file: str, data: bytes | pa.Buffer) -> None:
        """Put a file in place, instead of an earlier one: whole, and durable when this returns."""
        with self._errors(file, "written"):
            if self.scheme == "file":
                _write_locally(Path(self._at(file)), data)
            elif self.scheme == "hdfs":
                folder, _, last = self._at(file).rpartition("/")
                unfinished = f"{folder}/.{last}.{uuid.uuid4().hex}.{_UNFINISHED}"
                self._filesystem.create_dir(folder, recursive=True)
                self._put(unfinished, data)
                self._filesystem.move(unfinished, self._at(file))
            else:
                self._put(self._at(file), data)

    def place(self, local: Path, file: str) -> None:
        """Put a finished file of this machine in place: whole, durable, and however large it is."""
        with self._errors(file, "written"):
            if self.scheme == "file":
                with local.open("rb") as opened:
                    os.fsync(opened.fileno())
                Path(self._at(file)).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(local, self._at(file))
                _sync_folder(Path(self._at(file)).parent)
            else:
                fs.copy_files(str(local), self._at(file), fs.LocalFileSystem(), self._filesystem)

    def move(self, file: str, to: str) -> None:
        """Rename a file within this folder. In an object store that is a copy and a deletion."""
        with self._errors(file, "moved"):
            if self.scheme in ("file", "hdfs"):
                self._filesystem.create_dir(self._at(to).rpartition("/")[0], recursive=True)
            self._filesystem.move(self._at(file), self._at(to))

    def delete(self, file: str) -> None:
        """Remove a file; nothing happens if there is none."""
        with self._errors(file, "deleted"):
            try:
                self._filesystem.delete_file(self._at(file))
            except FileNotFoundError:
                pass
            except OSError:  # what an object store says of a missing object differs
                if self._filesystem.get_file_info(self._at(file)).type != fs.FileType.NotFound:
                    raise

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all that is in it, unfinished files too; nothing happens if there is none."""
        with self._errors(folder, "deleted"), suppress(FileNotFoundError):
            self._filesystem.delete_dir(self._at(folder))

    # Inside.

    def _at(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}" if name else self.root

    def _put(self, target: str, data: bytes | pa.Buffer) -> None:
        with self._filesystem.open_output_stream(target) as stream:
            stream.write(data)

    @cached_property
    def _filesystem(self) -> fs.FileSystem:
        try:
            return _connected(self)
        except (OSError, ValueError) as error:
            raise FileError(
                self.name(), f"cannot be reached: {_cause(error)}{self._advice(error)}"
            ) from error

    def __reduce__(self) -> tuple[type["Storage"], tuple[str, str, str]]:
        """Without its connection: each process makes its own."""
        return Storage, (self.scheme, self.authority, self.root)

    @contextmanager
    def _errors(self, file: str, done: str) -> Iterator[None]:
        """Errors of the system as one line that names the file and the cause."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileError(self.name(file), "is missing") from error
        except (OSError, pa.ArrowException) as error:
            raise FileError(
                self.name(file), f"cannot be {done}: {_cause(error)}{self._advice(error)}"
            ) from error

    def _advice(self, error: BaseException) -> str:
        """What is probably wrong, where the store's own words do not say it."""
        if self.scheme == "s3" and "ACCESS_DENIED" in str(error) and not os.environ.get("AWS_ACCESS_KEY_ID"):
            return "; AWS_ACCESS_KEY_ID is not set"
        if self.scheme == "hdfs" and re.search("libjvm|libhdfs", str(error)):
            return "; Hadoop's client is needed here: JAVA_HOME, HADOOP_HOME and CLASSPATH name it"
        return ""


def _connected(storage: Storage) -> fs.FileSystem:
    match storage.scheme:
        case "file":
            return fs.LocalFileSystem()
        case "s3":
            return _s3(storage.root.partition("/")[0])
        case "gs":
            return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=RETRY_SECONDS))
        case _:
            host, _, port = storage.authority.partition(":")
            return fs.HadoopFileSystem(host, int(port or 8020))


def _s3(bucket: str) -> fs.FileSystem:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    scheme, _, host = endpoint.rpartition("://")
    if not endpoint and not region:
        region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        endpoint_override=host.rstrip("/") or None,
        scheme=scheme or None,
        region=region or "us-east-1",  # a store of one's own has no regions, but requests must name one
        connect_timeout=CONNECT_SECONDS,
        allow_delayed_open=True,  # one request for a small file, not three
    )


def _write_locally(target: Path, data: bytes | pa.Buffer) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex}.{_UNFINISHED}")
    try:
        with unfinished.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        unfinished.replace(target)
        _sync_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """So that the new name is on the disk too."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _cause(error: BaseException) -> str:
    """One line. Arrow appends what C's `errno` says to its own words; Python's own errors have it apart."""
    text = str(getattr(error, "strerror", None) or error)
    line = " ".join(text.partition(" error_info=")[0].split())  # Google's says it twice
    return line[:CAUSE_LENGTH_MAX] or type(error).__name__
