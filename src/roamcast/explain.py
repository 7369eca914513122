"""From a TOML file to checked values. An error becomes one line that a person can act on: the key, its value,
what is allowed.

msgspec says where (`$.world.range`) and what type it wanted. The value is looked up in what was read,
and what is allowed follows from the type at that place, so no key needs a hand-written message.
"""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from roamcast.errors import FileError, ScenarioError

SHOWN_LENGTH_MAX = 60
FILE_BYTES_MAX = 100_000_000  # chosen by us

Step: TypeAlias = str | int | None
"""One step into nested tables: a key, a position in a list, or None where msgspec does not say which."""


def read_tables(path: Path) -> dict[str, Any]:
    """A TOML file as plain values, or a `FileError` with the line."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror}; allowed: a TOML file") from None
    if len(data) > FILE_BYTES_MAX:
        raise FileError(str(path), f"is larger than {FILE_BYTES_MAX:,} octets, the most allowed")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(f"{path}:{line}", "is not UTF-8 text; allowed: TOML in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, str(error), data.count(b"\n") + 1) from None
    except RecursionError:
        raise FileError(
            str(path), "nests its values too deeply; allowed: TOML as docs/study/scenario.md has it"
        ) from None


def converted(value: Mapping[str, Any], kind: type[Any], at: str = "") -> Any:
    """`value` as a `kind`, or a `ScenarioError` that names the dotted key under `at`."""
    for key, number in _numbers(value, at):
        if not math.isfinite(number):
            raise ScenarioError(key, f"is {number}; allowed: a finite number")
    _refuse_unknown_keys(value, _type_info(kind), at)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _explained(error, value, kind, at) from None


def keys_of(kind: type[Any], tag: str | None = None) -> list[str]:
    """The keys that a table may have; with `tag`, those of the struct in a union that has this tag."""
    return _keys(_struct(_type_info(kind), tag))


def _type_info(kind: type[Any]) -> inspect.Type:
    """Kept, because every run converts its scenario, and a large type takes 8 ms."""
    if kind not in _type_infos:
        _type_infos[kind] = inspect.type_info(kind)
    return _type_infos[kind]


_type_infos: dict[Any, inspect.Type] = {}  # of the types that this program has


def unknown(value: str, known: Sequence[str], what: str) -> str:
    """The error text for a name that is not among `known`: with the nearest one, and all of them."""
    near = difflib.get_close_matches(value, known, n=1)
    hint = f" (did you mean `{near[0]}`?)" if near else ""
    return f"{what}{hint}; allowed: {', '.join(known) or 'none'}"


def shown(value: object) -> str:
    """A value as it would be written in the file, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_LENGTH_MAX else text[: SHOWN_LENGTH_MAX - 1] + "…"


def _explained(error: msgspec.ValidationError, value: object, kind: type[Any], at: str) -> ScenarioError:
    message, _, path = str(error).partition(" - at ")
    steps = _steps(path)
    info, here, key = _follow(_type_info(kind), value, steps, at)
    if found := re.fullmatch(r"Object contains unknown field `(.*)`", message):
        return ScenarioError(
            _joined(key, found[1]),
            unknown(found[1], _keys(_struct(info, _tag(info, here))), "is no known key"),
        )
    if found := re.fullmatch(r"Object missing required field `(.*)`", message):
        info, _, _ = _follow(info, here, [found[1]], key)
        return ScenarioError(_joined(key, found[1]), f"is missing; it must be {described(info)}")
    return ScenarioError(key or "the file", f"is {shown(here)}; allowed: {described(info)}")


def _steps(path: str) -> list[Step]:
    """`$.fault[0].nodes` as ["fault", 0, "nodes"]."""
    steps: list[Step] = []
    for name, index in re.findall(r"\.(\w+)|\[([\d.]+)\]", path):
        steps.append(name or (int(index) if index.isdigit() else None))
    return steps


def _follow(
    info: inspect.Type, value: object, steps: Sequence[Step], key: str
) -> tuple[inspect.Type, object, str]:
    """The type, the value and the dotted key at the end of `steps`."""
    for step in steps:
        match step:
            case str():
                info = _field(info, value, step)
                value = value.get(step) if isinstance(value, Mapping) else None
                key = _joined(key, step)
            case int():
                info = _items(info, step)
                value = value[step] if isinstance(value, Sequence) and step < len(value) else None
                key = f"{key}[{step}]"
            case None:
                info = _items(info, 0)
                assert isinstance(value, Mapping)
                name = next((name for name in value if not _fits(value[name], info)), next(iter(value)))
                value = value[name]
                key = _joined(key, name)
    return info, value, key


def _field(info: inspect.Type, value: object, name: str) -> inspect.Type:
    structs = _structs(info)
    if any(name == struct.tag_field for struct in structs):
        return inspect.LiteralType(tuple(str(struct.tag) for struct in structs))
    for field in _struct(info, _tag(info, value)).fields:
        if field.encode_name == name:
            return field.type
    return inspect.AnyType()


def _items(info: inspect.Type, index: int) -> inspect.Type:
    for choice in _choices(info):
        match choice:
            case inspect.CollectionType():
                return choice.item_type
            case inspect.TupleType() if index < len(choice.item_types):
                return choice.item_types[index]
            case inspect.DictType():
                return choice.value_type
    return inspect.AnyType()


def _choices(info: inspect.Type) -> list[inspect.Type]:
    """The alternatives of a type, without null: TOML has none."""
    if isinstance(info, inspect.UnionType):
        return [choice for part in info.types for choice in _choices(part)]
    if isinstance(info, inspect.Metadata):
        return _choices(info.type)
    return [] if isinstance(info, inspect.NoneType) else [info]


def _structs(info: inspect.Type) -> list[inspect.StructType]:
    return [choice for choice in _choices(info) if isinstance(choice, inspect.StructType)]


def _struct(info: inspect.Type, tag: object) -> inspect.StructType:
    structs = _structs(info)
    return next((struct for struct in structs if struct.tag == tag), structs[0])


def _tag(info: inspect.Type, value: object) -> object:
    """Which struct of a tagged union `value` says it is."""
    tag_field = _structs(info)[0].tag_field
    return value.get(tag_field) if isinstance(value, Mapping) and tag_field else None


def _keys(struct: inspect.StructType) -> list[str]:
    tag = [struct.tag_field] if struct.tag_field else []
    return tag + [field.encode_name for field in struct.fields]


def described(info: inspect.Type) -> str:
    """What a type allows, in words."""
    choices = _choices(info)
    words = [_described_one(choice) for choice in choices if not isinstance(choice, inspect.StructType)]
    if structs := [choice for choice in choices if isinstance(choice, inspect.StructType)]:
        tags = [f'"{struct.tag}"' for struct in structs if struct.tag is not None]
        words.append(f"a table with {structs[0].tag_field} = {_either(tags)}" if tags else "a table")
    return " or ".join(words)


def _described_one(info: inspect.Type) -> str:
    match info:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number" + _bounds(info)
        case inspect.FloatType():
            return "a number" + _bounds(info)
        case inspect.StrType():
            return "a text" + _lengths(info.min_length, info.max_length, "characters")
        case inspect.LiteralType():
            return _either([json.dumps(value) for value in info.values])
        case inspect.EnumType():
            return _either([json.dumps(member.value) for member in info.cls])
        case inspect.CollectionType():
            lengths = _lengths(info.min_length, info.max_length, "values")
            return f"a list{lengths}, each {described(info.item_type)}"
        case inspect.TupleType():
            items = "; ".join(described(item) for item in info.item_types)
            return f"a list of {len(info.item_types)} values: {items}"
        case inspect.DictType():
            return f"a table, each value {described(info.value_type)}"
    return "any value"


def _bounds(info: inspect.IntType | inspect.FloatType) -> str:
    if info.ge is not None and info.le is not None:
        return f" from {_number(info.ge)} to {_number(info.le)}"
    signs = (("above", info.gt), ("of at least", info.ge), ("below", info.lt), ("of at most", info.le))
    words = [f"{sign} {_number(bound)}" for sign, bound in signs if bound is not None]
    return "".join(f" {word}" for word in " and ".join(words).split())


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _lengths(low: int | None, high: int | None, unit: str) -> str:
    if low is not None and low == high:
        return f" of {low} {unit}"
    if low:
        return f" of at least {low} {unit}" + (f" and at most {high:,}" if high is not None else "")
    return f" of at most {high:,} {unit}" if high is not None else ""


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _fits(value: object, info: inspect.Type) -> bool:
    """Whether a plain value could be of a type; only used to find the value in a table that is not."""
    for choice in _choices(info):
        match choice, value:
            case inspect.BoolType(), bool():
                return True
            case ((inspect.BoolType() | inspect.IntType() | inspect.FloatType()), bool()):
                continue
            case inspect.IntType(ge=low, le=high), int():
                return (low is None or low <= value) and (high is None or value <= high)
            case inspect.FloatType(), (int() | float()):
                return True
            case inspect.StrType(max_length=length), str():
                return length is None or len(value) <= length
    return False


def _refuse_unknown_keys(value: object, info: inspect.Type, at: str) -> None:
    """Refuse unknown keys of option structs that do not refuse them themselves."""
    structs = _structs(info)
    if len(structs) != 1 or not isinstance(value, Mapping):
        return
    known = _keys(structs[0])
    for key in value:
        if key not in known:
            raise ScenarioError(_joined(at, str(key)), unknown(str(key), known, "is no known key"))


def _numbers(value: object, at: str) -> Iterator[tuple[str, float]]:
    match value:
        case float():
            yield at, value
        case Mapping():
            for key, item in value.items():
                yield from _numbers(item, _joined(at, str(key)))
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _numbers(item, f"{at}[{index}]")


def _joined(key: str, name: str) -> str:
    step = name if re.fullmatch(r"[\w-]{1,128}", name) else shown(name)  # TOML allows any text as a key
    return f"{key}.{step}" if key else step


def _syntax_error(path: Path, message: str, lines: int) -> FileError:
    """tomllib puts the place into its message: `… (at line 3, column 5)`, or `(at end of document)`."""
    found = re.fullmatch(r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    if found is None:
        return FileError(str(path), f"is no TOML: {message}")
    place = f" at column {found[3]}" if found[3] else " at the end of the file"
    return FileError(f"{path}:{found[2] or lines}", f"is no TOML: {found[1]}{place}")
