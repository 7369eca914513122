"""Files that are whole or not there: what was lost, cut or changed is noticed before it is used."""

from pathlib import Path

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from roamcast.errors import FileError, InputError
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import (
    SealedFile,
    check_is_free,
    manifest_in,
    put_manifest,
    put_table,
    set_aside,
    table_in,
)

TABLE = pa.table({"t": [1, 2, 3]})


class Named(msgspec.Struct):
    files: dict[str, SealedFile]


def test_a_table_comes_back_with_where_it_comes_from(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    sealed = put_table(storage, "a/t.parquet", TABLE, {"made.by": "a test"})
    put_manifest(storage, "m.json", Named({"a/t.parquet": sealed}))
    named = manifest_in(storage, "m.json", Named)
    found = table_in(storage, "a/t.parquet", named.files["a/t.parquet"])
    assert found.to_pylist() == TABLE.to_pylist() and sealed.rows == 3
    assert found.schema.metadata[b"made.by"] == b"a test"


def test_a_file_that_is_not_what_its_manifest_says_is_refused(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    sealed = put_table(storage, "t.parquet", TABLE)
    whole = storage.read("t.parquet")
    changed = whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]
    for content, told in ((whole[:-1], "octets; its manifest says"), (changed, "has not the digest")):
        storage.write("t.parquet", content)
        with pytest.raises(FileError, match=told):
            table_in(storage, "t.parquet", sealed)
    storage.delete("t.parquet")
    with pytest.raises(FileError, match="is missing"):
        table_in(storage, "t.parquet", sealed)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [(b'"rows":3', b'"rows":4', "digest"), (b"sha256", b"sha257", "no manifest"), (b"{", b"", "no manifest")],
)
def test_a_manifest_that_was_changed_is_refused(tmp_path: Path, old: bytes, new: bytes, told: str) -> None:
    storage = Storage.open(tmp_path)
    put_manifest(storage, "m.json", Named({"t": put_table(storage, "t.parquet", TABLE)}))
    storage.write("m.json", storage.read("m.json").replace(old, new))
    with pytest.raises(FileError, match=told):
        manifest_in(storage, "m.json", Named)


def test_a_manifest_that_the_store_loses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.open(tmp_path)
    for content in (None, b"of before"):  # no file, and the one that should have been replaced
        if content is not None:
            storage.write("m.json", content)
        with monkeypatch.context() as patch:
            patch.setattr(Storage, "write", lambda *_: None)
            with pytest.raises(FileError, match=r"m\.json: was written, but the storage does not have it"):
                put_manifest(storage, "m.json", Named({}))


def test_what_is_set_aside_is_kept_elsewhere(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path)
    storage.write("a/odd.txt", b"odd")
    set_aside(storage, "a/odd.txt")
    assert storage.files() == {"aside/a/odd.txt": 3}
    with pytest.raises(InputError, match="holds something else"):
        check_is_free(storage)
