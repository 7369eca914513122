"""Parts chosen by name in a file: strategies, underlays, modulators, mobility and radio models.

A part is built in, an entry point of an installed distribution, or added by a module that a file names
(`plugins.py`). A registry knows its names without importing anything: a built-in part is declared by its
module and attribute, and loaded when it is named. Its abilities are declared beside its name, for the same
reason.

A plug-in adds itself with one call, when its module is imported:

    STRATEGIES.add("gossip", GossipOptions, Gossip, default_underlay="none")
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from roamcast.errors import InputError, ScenarioError
from roamcast.explain import converted, shown, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

Context = TypeVar("Context")
Part = TypeVar("Part")
Declared = TypeVar("Declared")

BUILT_IN = "built in"


class PluginError(InputError):
    """A plug-in that cannot be used. `where` names the part and where it came from."""


class Plugin(NamedTuple):
    """A module from outside the tree, and where it came from: a file, an entry point, an installed module."""

    module: str
    origin: str
    files: tuple[tuple[str, bytes], ...] = ()  # of a module beside a file: relative names and contents


class NothingDeclared(NamedTuple):
    """For parts that have nothing to declare."""


class RegisteredPart(NamedTuple, Generic[Declared]):
    """What a registry holds of one part."""

    options: Any  # a struct class, or its place as text
    make: Any  # a callable, its place as text, or None where the struct is the part
    declared: Declared
    origin: str
    plugin: Plugin | None  # None: built in


class Registry(Generic[Context, Part, Declared]):
    """`kind` is the word for one part, `group` that of its entry points, `declared` what parts declare."""

    def __init__(self, kind: str, group: str, declared: Callable[..., Declared]) -> None:
        self.kind = kind
        self.group = group
        self._declared = declared
        self._entries: dict[str, RegisteredPart[Declared]] = {}

    # Registering.

    def declare(self, name: str, options: str, make: str | None = None, **declared: Any) -> None:
        """A part of our own. Both places are `module:attribute`, imported when the part is named."""
        assert name not in self._entries, name
        self._entries[name] = RegisteredPart(options, make, self._declared(**declared), BUILT_IN, None)

    def add(
        self,
        name: str,
        options: type[msgspec.Struct],
        make: Callable[[Context, Any], Part] | None = None,  # Any: each maker takes its own options type
        **declared: Any,
    ) -> None:
        """A part from anywhere: its options, and what makes it from a context and such options."""
        origin, plugin = origin_of(getattr(make or options, "__module__", None))
        if not (isinstance(options, type) and issubclass(options, msgspec.Struct)):
            raise PluginError(
                f"{self.kind} {name!r} ({origin})",
                f"has no options struct but {options!r}; allowed: a msgspec.Struct class",
            )
        self._put(name, RegisteredPart(options, make, self._declared(**declared), origin, plugin))

    def remove(self, name: str) -> None:
        """Forget a part that was added; its name is free again."""
        del self._entries[name]
        for state in _loading:
            if (self, name) in state.added:
                state.added.remove((self, name))

    # Questions that load nothing.

    def names(self) -> list[str]:
        return sorted(self._entries.keys() | self._points().keys())

    def own_names(self) -> list[str]:
        """The names of the built-in parts."""
        return [name for name in sorted(self._entries) if not self.is_plugin(name)]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._points()

    def names_with(self, ability: Callable[[Declared], bool]) -> list[str]:
        """Among built-in and loaded parts; the abilities of an entry point are known once it is loaded."""
        return [name for name in sorted(self._entries) if ability(self._entries[name].declared)]

    def origin(self, name: str) -> str:
        if name in self._entries:
            return self._entries[name].origin
        return _origin_of_points(self._points()[name])

    def is_plugin(self, name: str) -> bool:
        return name not in self._entries or self._entries[name].origin != BUILT_IN

    def shadowed(self) -> list[PluginError]:
        """Entry points that cannot be reached, because a built-in part has their name."""
        return [
            PluginError(
                f"{self.kind} {name!r} ({_origin_of_points(points)})", "has the name of another, built in"
            )
            for name, points in sorted(self._points().items())
            if name in self._entries and self._entries[name].origin == BUILT_IN
        ]

    # Questions that load the part they name.

    def declared(self, name: str) -> Declared:
        return self._entry(name).declared

    def plugin(self, name: str) -> Plugin | None:
        """The plug-in that added a part; None for a built-in part."""
        return self._entry(name).plugin

    def options_type(self, name: str) -> type[msgspec.Struct]:
        options: type[msgspec.Struct] = loaded(self._entry(name).options)
        return options

    def maker(self, name: str) -> Any:
        """What makes the part: a class or a function."""
        return loaded(self._entry(name).make)

    def make(self, name: str, context: Context, options: msgspec.Struct | None = None) -> Part:
        """Build a part; without options it takes its defaults."""
        part: Part = self.maker(name)(context, options if options is not None else self.options_type(name)())
        return part

    def check(self, key: str, name: str, options: Mapping[str, Any], refused: Collection[str] = ()) -> None:
        """`ScenarioError` for a name that does not exist or is refused, or for options it does not take."""
        if name in refused or name not in self:
            known = [other for other in self.names() if other not in refused]
            raise ScenarioError(f"{key}.name", unknown(name, known, f"is {shown(name)}"))
        try:
            kind = self.options_type(name)
        except PluginError as error:
            raise ScenarioError(f"{key}.name", f"is {shown(name)}: {error}") from error
        converted(options, kind, f"{key}.options")

    # Private.

    def _put(self, name: str, entry: RegisteredPart[Declared]) -> None:
        if name in self._entries:
            raise PluginError(
                f"{self.kind} {name!r} ({entry.origin})",
                f"has the name of another, {self._entries[name].origin}",
            )
        self._entries[name] = entry
        if _loading:
            _loading[-1].added.append((self, name))

    def _entry(self, name: str) -> RegisteredPart[Declared]:
        if name not in self._entries:
            points = self._points().get(name)
            if points is None:
                raise InputError(self.kind, unknown(name, self.names(), f"is {name!r}"))
            self._load(name, points)
        return self._entries[name]

    def _points(self) -> "dict[str, list[EntryPoint]]":
        found: dict[str, list[EntryPoint]] = {}
        for point in _installed_points(self.group, _import_path()):
            same = found.setdefault(point.name, [])
            # A folder that is on the import path twice lists its distributions twice.
            if _origin_of_points([point]) not in map(_origin_of_points, ([other] for other in same)):
                same.append(point)
        return found

    def _load(self, name: str, points: "list[EntryPoint]") -> None:
        origin = _origin_of_points(points)
        where = f"{self.kind} {name!r} ({origin})"
        if len(points) > 1:
            raise PluginError(where, "is brought by several; allowed: one of them installed")
        module = points[0].module
        with loading(Plugin(module, origin)):
            try:
                import_module(module)
            except PluginError:
                raise
            except Exception as error:
                raise PluginError(where, f"cannot be imported: {in_a_line(error)}") from error
        if name not in self._entries:
            raise PluginError(
                where, f"is not in {module}; allowed: a module that adds the {self.kind} it names"
            )


def _import_path() -> tuple[tuple[str, int], ...]:
    """Where installed packages are looked for, and when something was last installed there."""
    found = []
    for folder in sys.path:
        try:
            found.append((folder, os.stat(folder or ".").st_mtime_ns))
        except OSError:
            found.append((folder, 0))
    return tuple(found)


@lru_cache(maxsize=16)  # a few groups
def _installed_points(group: str, _: tuple[tuple[str, int], ...]) -> "EntryPoints":
    """Kept, because every run asks for them, and reading those of all packages takes 10 ms."""
    from importlib.metadata import entry_points  # a megabyte, which a node of built-in parts does not need

    return entry_points(group=group)


class ModelRegistry(Registry[Context, Part, Declared]):
    """Parts whose options are a table of their own, told apart by its key `model`: motion and radio."""

    def add(
        self,
        name: str,
        options: type[msgspec.Struct],
        make: Callable[[Context, Any], Part] | None = None,
        **declared: Any,
    ) -> None:
        super().add(name, options, make, **declared)
        config = options.__struct_config__
        if (config.tag_field, config.tag) != ("model", name):
            origin = self.origin(name)
            self.remove(name)
            raise PluginError(
                f"{self.kind} {name!r} ({origin})", f"has the tag {config.tag!r}; allowed: tag={name!r}"
            )

    def added(self) -> list[type[msgspec.Struct]]:
        """The models from outside that are loaded."""
        return [self.options_type(name) for name in sorted(self._entries) if self.is_plugin(name)]


class _Loading(NamedTuple):
    plugin: Plugin
    added: list[tuple[Registry[Any, Any, Any], str]]


_loading: list[_Loading] = []  # a plug-in that imports another is loaded around it


@contextmanager
def loading(plugin: Plugin) -> Iterator[list[tuple[Registry[Any, Any, Any], str]]]:
    """While a plug-in's module is imported: what it adds is its own, and is removed if the import fails."""
    state = _Loading(plugin, [])
    _loading.append(state)
    try:
        yield state.added
    except BaseException:
        for registry, name in list(state.added):
            registry.remove(name)
        raise
    finally:
        _loading.pop()


def in_a_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def origin_of(module: str | None) -> tuple[str, Plugin | None]:
    """Where a part comes from that a module adds: the plug-in that is being loaded, or the module's file."""
    if _loading:
        return _loading[-1].plugin.origin, _loading[-1].plugin
    name = module or "__main__"
    if name.startswith("roamcast."):
        return BUILT_IN, None
    origin = str(getattr(sys.modules.get(name), "__file__", None) or name)
    return origin, Plugin(name, origin)


def _origin_of_points(points: "list[EntryPoint]") -> str:
    places = [
        f"entry point of {point.dist.name} {point.dist.version}"
        if point.dist
        else f"entry point {point.value}"
        for point in points
    ]
    return ", ".join(sorted(places))


def loaded(place: Any) -> Any:
    """The object that a text `module:attribute` names; anything else is returned as it is."""
    if not isinstance(place, str):
        return place
    module, _, attribute = place.partition(":")
    return attrgetter(attribute)(import_module(module))
