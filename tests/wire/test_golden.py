"""What nodes say on the air, as octets in the repository: `golden_frames.json` beside this file.

It has one frame of every message of every codec, made from the message's type with all fields filled, beside
the version. Two nodes understand each other as long as their versions are equal, so octets that change need a
version that rises (`docs/use/deploy.md` tells people by it what they may mix). After that, write the file
anew:

    python -m tests.wire.test_golden

It refuses to change a frame whose version has not risen. Names of fields stand there too, because two fields
of one type that change places leave the octets as they are; where a field only has a new name, write the file
anew.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from tests.contract.hostile import codecs_of, type_of

import roamcast.strategy
import roamcast.underlay
import roamcast.wire
from roamcast import chunks
from roamcast.runtime.live.storage import database
from roamcast.sealing import content, frame
from roamcast.wire import Codec, local

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("golden_frames.json")
PACKAGES = (roamcast.strategy, roamcast.underlay, roamcast.wire)
BY_NAME = {local.StatusAnswer, local.WayAnswer}  # in them fields go by name, and may have defaults
CODECS = {codec.name: codec for package in PACKAGES for codec in codecs_of(package)}


class FrameMaker:
    """A value of any type: numbers count up, so that values that change places are seen."""

    def __init__(self) -> None:
        self._last = 0

    def value(self, kind: Any, depth: int = 0) -> Any:
        match kind:
            case inspect.Metadata():
                return self.value(kind.type, depth)
            case inspect.UnionType():
                some = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
                return self.value(some[0], depth)
            case inspect.StructType():
                return self.struct(kind, depth)
            case inspect.IntType():
                self._last = self._last % 100 + 1
                return max(min(self._last, _upper(kind)), 0 if kind.ge is None else kind.ge)
            case inspect.FloatType():
                return 0.5 if kind.ge is None else max(0.5, kind.ge)
            case inspect.BoolType():
                return True
            case inspect.StrType():
                return "a".ljust(kind.min_length or 0, "a")
            case inspect.BytesType():
                return b"\x01".ljust(kind.min_length or 0, b"\x01")[: kind.max_length]
            case inspect.VarTupleType() | inspect.ListType() | inspect.SetType() | inspect.FrozenSetType():
                entries = max(kind.min_length or 0, int(depth < 4))
                return [self.value(kind.item_type, depth + 1) for _ in range(entries)]
            case inspect.TupleType():
                return [self.value(one, depth + 1) for one in kind.item_types]
            case inspect.NamedTupleType():
                return [self.value(field.type, depth + 1) for field in kind.fields]
            case inspect.DictType():
                return {self.value(kind.key_type, depth + 1): self.value(kind.value_type, depth + 1)}
            case inspect.EnumType():
                return next(iter(kind.cls)).value
            case inspect.LiteralType():
                return kind.values[0]
        assert isinstance(kind, inspect.AnyType), f"no value of {kind} is made yet"
        return None

    def struct(self, kind: inspect.StructType, depth: int = 0) -> Any:
        if kind.array_like:
            values = [self.value(field.type, depth + 1) for field in kind.fields]
            return values if kind.tag is None else [kind.tag, *values]
        # Fields by name: those that have a default may come and go.
        return {one.encode_name: self.value(one.type, depth + 1) for one in kind.fields if one.required}


def _upper(kind: inspect.IntType) -> int:
    return int(min(2**31 if bound is None else bound for bound in (kind.le, kind.lt and kind.lt - 1)))


def messages_of(codec: Codec[Any]) -> dict[str, inspect.StructType]:
    """By tag."""
    kind = type_of(codec)
    kinds: tuple[Any, ...] = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return {str(one.tag): one for one in kinds}


def made(codec: Codec[Any]) -> dict[str, Any]:
    frames = {
        tag: {
            "fields": " ".join(field.name for field in kind.fields),
            "octets": (codec._prefix + msgspec.msgpack.encode(FrameMaker().struct(kind))).hex(),
        }
        for tag, kind in messages_of(codec).items()
    }
    return {"version": codec._version, "frames": frames}


def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Tags of messages that an older node of the same version would not read, or read as something else."""
    if old["version"] != new["version"]:
        return []
    before, after = old["frames"], new["frames"]
    tags = sorted({*before, *after})
    return [tag for tag in tags if before.get(tag, {}).get("octets") != after.get(tag, {}).get("octets")]


@pytest.mark.parametrize("name", sorted({*CODECS, *golden()}))
def test_octets_change_only_with_their_version(name: str) -> None:
    assert name in CODECS and name in golden(), "a codec came or went: python -m tests.wire.test_golden"
    old, new = golden()[name], made(CODECS[name])
    assert not changed(old, new), "these messages have other octets: raise the codec's version"
    assert old == new, "the version or a field's name is new: python -m tests.wire.test_golden"


@pytest.mark.parametrize("name", sorted(CODECS))
def test_golden_frames_are_read_and_written_as_they_are(name: str) -> None:
    codec = CODECS[name]
    for tag, kind in messages_of(codec).items():
        octets = bytes.fromhex(golden()[name]["frames"][tag]["octets"])
        message = codec.decode(octets)
        assert type(message) is kind.cls
        assert codec.decode(codec.encode(message)) == message
        if kind.cls not in BY_NAME:
            assert codec.encode(message) == octets


def test_a_new_or_moved_field_is_a_change_and_a_higher_version_is_none() -> None:
    class Before(msgspec.Struct, array_like=True, tag=1):
        near: int
        far: str = ""

    class After(msgspec.Struct, array_like=True, tag=1):
        far: str
        near: int = 0

    class More(Before, array_like=True, tag=1):
        further: int = 0

    old = made(Codec("test", 1, Before))
    assert changed(old, made(Codec("test", 1, Before))) == []
    assert changed(old, made(Codec("test", 1, After))) == ["1"]
    assert changed(old, made(Codec("test", 1, More))) == ["1"]
    assert changed(old, made(Codec("test", 2, More))) == []


def test_the_page_for_upgrades_has_the_versions_of_now() -> None:
    page = (ROOT / "docs" / "use" / "deploy.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| ([^|]+) \| (?:\d+|none) \| (\d+)\b[^|]*\|$", page, re.MULTILINE))
    versions = {
        "`chapar`": CODECS["chapar"]._version,
        "`directed`": CODECS["directed"]._version,
        "`epidemic`": CODECS["epidemic"]._version,
        "`flooding`": CODECS["flood"]._version,
        "`odmrp`": CODECS["odmrp"]._version,
        "`opportunistic`": CODECS["opportunistic frame"]._version,
        "`tree`: overlay": CODECS["tree"]._version,
        "`tree`: content": CODECS["content"]._version,
        "events sealed from end to end": content.VERSION,
        "local socket": local.VERSION,
        "sealed frames": frame.VERSION,
        "beacons": CODECS["beacon"]._version,
        "large payloads (chunks)": chunks.VERSION,
        "database": database.VERSION,
    }
    assert told == {what: str(version) for what, version in versions.items()}


def main() -> None:
    old = golden() if FILE.exists() else {}
    new = {name: made(codec) for name, codec in sorted(CODECS.items())}
    for name in sorted({*old} & {*new}):
        if tags := changed(old[name], new[name]):
            sys.exit(
                f"{name}: the messages {', '.join(tags)} have other octets; raise the codec's version first"
            )
    FILE.write_text(json.dumps(new, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
