"""Storage by URI: the same promises on a disk and in a real object store."""

import errno
import os
import pickle
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.lab.storage.object_store import ObjectStore

from roamcast.errors import FileError, InputError
from roamcast.lab.storage import Storage


@pytest.fixture(params=["disk", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "disk":
        yield Storage.open(tmp_path / "folder")
    else:
        store: ObjectStore = request.getfixturevalue("object_store")
        folder = Storage.open(store.uri("folder"))
        yield folder
        folder.delete_folder("")


def test_what_is_written_is_read_listed_replaced_moved_and_deleted(storage: Storage) -> None:
    assert storage.files() == {} and storage.read_if_there("a/one") is None
    storage.write("a/one", b"first")
    storage.write("a/one", b"second")
    storage.write("two", b"")
    assert storage.read("a/one") == b"second" and storage.exists("a/one") and not storage.exists("a")
    assert storage.files() == {"a/one": 6, "two": 0} and storage.files("a") == {"a/one": 6}
    with storage.opened("a/one") as opened:
        opened.seek(2)
        assert opened.read(3) == b"con"
    storage.move("a/one", "b/c/one")
    assert storage.files() == {"b/c/one": 6, "two": 0}
    assert storage.folder("b").read("c/one") == b"second"
    storage.delete("two")
    storage.delete("two")
    assert list(storage.files()) == ["b/c/one"]
    storage.delete_folder("b")
    storage.delete_folder("b")
    assert storage.files() == {}


def test_a_missing_file_is_named(storage: Storage) -> None:
    with pytest.raises(FileError, match="is missing") as caught:
        storage.read("no/such")
    assert caught.value.where == storage.name("no/such") and caught.value.where.endswith("folder/no/such")


def test_a_storage_travels_to_a_worker_without_its_connection(storage: Storage) -> None:
    storage.write("x", b"1")
    sent = pickle.dumps(storage)
    assert b"test" not in sent or storage.scheme == "file"
    assert pickle.loads(sent).read("x") == b"1"


def test_large_files_arrive_whole(storage: Storage) -> None:
    data = bytes(range(256)) * 50_000  # 12.8 MB: more than one part of an upload
    storage.write("large", data)
    assert storage.read("large") == data


def test_names_for_spark_and_for_people(tmp_path: Path) -> None:
    assert Storage.open("s3a://b/k/").name("x") == Storage.open("s3://b/k").name("x") == "s3://b/k/x"
    assert Storage.open("gcs://b/k").name() == "gs://b/k"
    assert Storage.open("hdfs://h:8020/k").spark_name("x") == "hdfs://h:8020/k/x"
    local = Storage.open(f"file://{tmp_path}/a%20b")
    assert local.path == tmp_path / "a b" and local.spark_name("x") == f"file://{tmp_path}/a b/x"
    assert Storage.open("out").path == Path.cwd() / "out"
    assert Storage.open(Path("s3:/odd")).path == Path.cwd() / "s3:" / "odd", "a path is a path"


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("ftp://host/o", "scheme ftp"),
        ("s3b://bucket/o", "scheme s3b"),
        ("https://bucket.s3/o", "scheme https"),
        ("s3:/bucket/o", "names no bucket"),
        ("hdfs:///o", "names no host"),
        ("file://host/o", "no local folder"),
        ("s3://key:secret@bucket/o", "credentials in the environment"),
        ("", "is empty"),
    ],
)
def test_what_is_no_place_is_refused_in_a_line(uri: str, problem: str) -> None:
    with pytest.raises(InputError, match="allowed") as caught:
        Storage.open(uri)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_bucket_and_a_deaf_store_are_said_in_a_line(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileError) as caught:
        Storage.open("s3://no-such-bucket/o").write("x", b"1")
    assert "s3://no-such-bucket/o/x" in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(FileError, match="cannot be read") as caught:
        Storage.open("s3://study/o").read("x")
    assert "s3://study/o/x" in str(caught.value) and "\n" not in str(caught.value)


class _Refusing(BaseHTTPRequestHandler):
    """A store that knows nobody."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.send_header("content-length", "0")
        self.end_headers()

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def test_missing_credentials_are_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        storage = Storage.open("s3://study/o")
        try:
            for attempt in (lambda: storage.read("x"), lambda: storage.write("x", b""), storage.files):
                with pytest.raises(FileError, match=r"s3://study/o.*AWS_ACCESS_KEY_ID is not set$"):
                    attempt()
        finally:
            server.shutdown()


def test_no_hadoop_on_this_machine_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/nonexistent")
    with pytest.raises(FileError, match=r"cannot be reached.*; Hadoop's client is needed here") as caught:
        Storage.open("hdfs://127.0.0.1:9/o").files()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_a_failed_write_leaves_the_earlier_file_and_names_the_cause(tmp_path: Path) -> None:
    """A limit on file sizes is what an ordinary user has in place of a full disk."""
    script = (
        "import resource, signal, sys\nfrom roamcast.lab.storage import Storage\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "folder = Storage.open(sys.argv[1])\nfolder.write('x', b'earlier')\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))\n"
        "folder.write('x', bytes(100_000))"
    )
    ended = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True)
    last = ended.stderr.splitlines()[-1]
    assert f"{tmp_path}/x: cannot be written: {os.strerror(errno.EFBIG)}" in last
    assert (tmp_path / "x").read_bytes() == b"earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
