"""Descriptions of the parts that a file can name: `roamcast strategies`, `roamcast parts KIND NAME`.

An option's meaning is its comment in the struct's source, above the field and behind it. So the
meaning is written once, where the option is defined. `msgspec.Meta(description=…)` is taken where given.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from roamcast.errors import InputError
from roamcast.explain import described, shown, unknown
from roamcast.registry import PluginError, Registry, loaded


class OptionDescription(NamedTuple):
    """One key that a user may set."""

    name: str
    allowed: str  # type and range, in words
    default: str | None  # as it would be written in the file; None: it must be given
    meaning: str


class PartDescription(NamedTuple):
    name: str
    origin: str  # built in, or where the plug-in came from
    meaning: str
    declared: dict[str, Any]
    options: list[OptionDescription]
    problem: str | None = None  # why it cannot be used


def kinds() -> list[str]:
    return sorted(_REGISTRIES)


def describe(kind: str, name: str | None = None) -> list[PartDescription]:
    """All parts of a kind, or one of them with its options. Listing loads no plug-in and no built-in part."""
    registry = _registry(kind)
    if name is not None:
        return [_described(registry, name)]
    listed = [PartDescription(each, registry.origin(each), "", {}, []) for each in registry.names()]
    shadowed = [PartDescription(_name(error), "", "", {}, [], str(error)) for error in registry.shadowed()]
    return listed + shadowed


def to_text(parts: list[PartDescription]) -> str:
    """A line for each part; for a single named part, its options too."""
    lines = []
    width = max((len(part.name) for part in parts), default=0)
    for part in parts:
        lines.append(f"{part.name:<{width}}  {part.problem or part.origin}")
        if part.meaning:
            lines.append(f"\n{part.meaning}")
        lines += [f"  {key}: {shown(value)}" for key, value in part.declared.items()]
        for option in part.options:
            default = "required" if option.default is None else f"default {option.default}"
            lines.append(f"\n  {option.name}  ({default}; {option.allowed})")
            lines += textwrap.wrap(option.meaning, 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def to_json(parts: list[PartDescription]) -> str:
    return msgspec.json.encode({"parts": [_plain(part) for part in parts]}).decode()


def _plain(part: PartDescription) -> dict[str, Any]:
    return {**part._asdict(), "options": [option._asdict() for option in part.options]}


_REGISTRIES = {
    "strategies": "roamcast.strategy:STRATEGIES",
    "underlays": "roamcast.underlay:UNDERLAYS",
    "modulators": "roamcast.modulator:MODULATORS",
    "mobility": "roamcast.scenario.model:MOBILITY",  # there, because it adds recorded motion
    "radios": "roamcast.world.radio:RADIOS",
    "metrics": "roamcast.lab.run.metrics:METRICS",
}


def _registry(kind: str) -> Registry[Any, Any, Any]:
    if kind not in _REGISTRIES:
        raise InputError("kind", unknown(kind, kinds(), f"is {shown(kind)}"))
    try:
        registry: Registry[Any, Any, Any] = loaded(_REGISTRIES[kind])
    except ModuleNotFoundError as error:
        raise InputError(kind, f"need {error.name}; remedy: pip install 'roamcast[lab]'") from None
    return registry


def _described(registry: Registry[Any, Any, Any], name: str) -> PartDescription:
    try:
        options, declared = registry.options_type(name), registry.declared(name)
    except PluginError as error:
        return PartDescription(name, registry.origin(name), "", {}, [], str(error))
    part = registry.maker(name) or options
    if options is None:  # a metric: it has no options
        return PartDescription(name, registry.origin(name), part.meaning, {"unit": part.unit}, [])
    meaning = inspect.getdoc(part) if isinstance(part, type) and part.__doc__ else None
    module = inspect.getmodule(part)
    meaning = meaning or inspect.getdoc(module) or ""
    first = " ".join(meaning.split("\n\n")[0].split())
    return PartDescription(
        name, registry.origin(name), first, dict(declared._asdict()), list(_options(options))
    )


def _options(kind: type[msgspec.Struct]) -> Iterator[OptionDescription]:
    comments: dict[str, str] = {}
    for ancestor in reversed(kind.__mro__):
        if issubclass(ancestor, msgspec.Struct) and ancestor is not msgspec.Struct:
            comments |= _comments(ancestor)
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        default = None
        if not field.required:
            made = (
                field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
            )
            default = "none" if made is None else shown(msgspec.to_builtins(made))
        meaning = comments.get(field.name, "")
        if isinstance(field.type, msgspec.inspect.Metadata):
            meaning = (field.type.extra_json_schema or {}).get("description", meaning)
        yield OptionDescription(field.encode_name, described(field.type), default, meaning)


def _comments(kind: type) -> dict[str, str]:
    """By field, its comments in the struct's source; nothing where there is no source."""
    try:
        lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    except (OSError, TypeError):
        return {}
    (tree,) = ast.parse("\n".join(lines)).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            words = [*_above(lines, node.lineno - 1), *_behind(lines, node)]
            found[node.target.id] = " ".join(words)
    return found


def _above(lines: list[str], row: int) -> list[str]:
    words: list[str] = []
    while row > 0 and lines[row - 1].strip().startswith("#"):
        row -= 1
        words.insert(0, lines[row].strip().lstrip("# "))
    return words


def _behind(lines: list[str], node: ast.AnnAssign) -> list[str]:
    """Comments on the field's own lines: what follows the code there, outside of any text."""
    words = []
    for row in range(node.lineno - 1, node.end_lineno or node.lineno):
        code, mark, comment = lines[row].rpartition("  # ")
        if mark and code.count('"') % 2 == 0:
            words.append(comment.strip())
    return words


def _name(error: PluginError) -> str:
    return error.where.split("'")[1]
