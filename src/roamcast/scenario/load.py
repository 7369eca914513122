"""From a TOML file and settings on the command line to a checked scenario."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from roamcast.errors import FileError, ScenarioError
from roamcast.explain import converted, keys_of, shown
from roamcast.scenario.checks import checked
from roamcast.scenario.model import Scenario, Tables, World

Setting: TypeAlias = tuple[str, Any]
"""A dotted key and the value that it gets instead of the file's."""

FILE_BYTES_MAX = 100_000_000


def load_scenario(path: Path | str, seed: int | None = None, overrides: Iterable[str] = ()) -> Scenario:
    """The scenario in a file. `overrides` are `dotted.key=value` texts; a `seed` wins over both."""
    settings = [parsed_override(text) for text in overrides]
    if seed is not None:
        settings.append(("scenario.seed", seed))
    source = Path(path)
    return scenario_from(read_tables(source), base=source.parent, settings=settings, source=str(path))


def scenario_from(
    tables: Mapping[str, Any],
    base: Path = Path(),
    settings: Iterable[Setting] = (),
    source: str = "",
) -> Scenario:
    """The scenario in tables that are already in memory: a file's, or `Scenario.to_dict()`.

    File names inside are relative to `base`. With a `source`, errors begin with it.
    """
    try:
        return checked(converted(with_settings(tables, settings), Tables), base)
    except ScenarioError as error:
        where = f"{source}: {error.where}" if source else error.where
        raise ScenarioError(where, error.problem) from None


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


def parsed_override(text: str) -> Setting:
    """`world.nodes=50` as ("world.nodes", 50). What is no TOML value is taken as a text."""
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not all(key.split(".")):
        raise ScenarioError(
            shown(text), "is no setting; allowed: key=value with a dotted key, e.g. world.nodes=50"
        )
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return key, value
    return key, parsed["value"] if list(parsed) == ["value"] else value


def with_settings(tables: Mapping[str, Any], settings: Iterable[Setting]) -> dict[str, Any]:
    """A copy of `tables` in which each dotted key has its new value.

    A setting that chooses another part goes first, and clears what the file said for the part it
    replaces: all options of another strategy or underlay; of another mobility or radio model the keys
    that the new one does not have.
    """
    result: dict[str, Any] = _copied(tables)
    ordered = sorted(
        settings, key=lambda setting: setting[0] not in _CHOICES
    )  # stable: the rest keeps its order
    for key, value in ordered:
        table, name = _table_of(result, key)
        if key in _CHOICES and table.get(name) != value:
            _clear(table, key, value)
        table[name] = _copied(value)
    return result


_CHOICES = {
    "strategy.name": None,
    "underlay.name": None,
    "world.mobility.model": "mobility",
    "world.radio.model": "radio",
}
"""The keys that choose a part; for a model, the field of `World` that holds it."""


def _clear(table: dict[str, Any], key: str, value: Any) -> None:
    field = _CHOICES[key]
    if field is None:
        table.pop("options", None)
        return
    models = msgspec.structs.fields(World)
    kind = next(model.type for model in models if model.name == field)
    known = keys_of(kind, value)
    for name in [name for name in table if name not in known]:
        del table[name]


def _table_of(tables: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The table that holds a dotted key, made where it is missing, and the key's last name."""
    *path, name = key.split(".")
    table = tables
    for depth, step in enumerate(path, start=1):
        inner = table.setdefault(step, {})
        if not isinstance(inner, dict):
            raise ScenarioError(
                key, f"cannot be set: {'.'.join(path[:depth])} is {shown(inner)}, not a table"
            )
        table = inner
    return table, name


def _copied(value: Any) -> Any:
    """A deep copy in which tables are dicts and lists lists."""
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value


def _syntax_error(path: Path, message: str, lines: int) -> FileError:
    """tomllib puts the place into its message: `… (at line 3, column 5)`, or `(at end of document)`."""
    found = re.fullmatch(r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    if found is None:
        return FileError(str(path), f"is no TOML: {message}")
    place = f" at column {found[3]}" if found[3] else " at the end of the file"
    return FileError(f"{path}:{found[2] or lines}", f"is no TOML: {found[1]}{place}")
