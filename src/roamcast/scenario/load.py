"""From a TOML file and settings on the command line to a checked scenario."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from roamcast.errors import ScenarioError, errors_in
from roamcast.explain import converted, keys_of, read_tables, shown
from roamcast.plugins import load_modules, modules_in
from roamcast.scenario.checks import checked
from roamcast.scenario.model import MODELS, Scenario, model_type, tables_type

Setting: TypeAlias = tuple[str, Any]
"""A dotted key and the value that replaces the file's."""


def load_scenario(path: Path | str, seed: int | None = None, overrides: Iterable[str] = ()) -> Scenario:
    """The scenario in a file. `overrides` are `dotted.key=value` texts; `seed` has precedence over both."""
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
    *,
    loads_modules: bool = True,
) -> Scenario:
    """The scenario in tables that are already in memory: a file's, or `Scenario.to_dict()`.

    File names inside are relative to `base`. With a `source`, errors begin with it. `loads_modules` False:
    whoever calls has loaded the scenario's modules already.
    """
    with errors_in(source):
        if loads_modules:
            load_modules(modules_in(tables, "scenario"), base, "scenario.modules")
        wanted = with_settings(tables, settings)
        return checked(converted(wanted, tables_type(wanted)), base)


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

    A setting that chooses another part is applied first, and removes what the file set for the replaced
    part: all options of another strategy or underlay; of another mobility or radio model the keys that
    the new one does not have.
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


_CHOICES = {"strategy.name": None, "underlay.name": None} | {
    f"world.{field}.model": field for field in MODELS
}
"""The keys that choose a part; for a model, the field of `World` that holds it."""


def _clear(table: dict[str, Any], key: str, value: Any) -> None:
    field = _CHOICES[key]
    if field is None:
        table.pop("options", None)
        return
    known = keys_of(model_type(field, {"model": value}), value)
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
