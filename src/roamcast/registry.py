"""Parts chosen by name in a file: strategies and underlays, with their options and makers."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from roamcast.errors import InputError

Context = TypeVar("Context")
Part = TypeVar("Part")


class Registered(NamedTuple, Generic[Context, Part]):
    options: type[msgspec.Struct]
    make: Callable[[Context, Any], Part]  # Any: each maker takes its own options type


class Registry(Generic[Context, Part]):
    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._entries: dict[str, Registered[Context, Part]] = {}

    def add(self, name: str, options: type[msgspec.Struct], make: Callable[[Context, Any], Part]) -> None:
        assert name not in self._entries, name
        self._entries[name] = Registered(options, make)

    def names(self) -> list[str]:
        return sorted(self._entries)

    def options_type(self, name: str) -> type[msgspec.Struct]:
        return self._entry(name).options

    def make(self, name: str, context: Context, options: msgspec.Struct | None = None) -> Part:
        """Build a part; without options it takes its defaults."""
        entry = self._entry(name)
        return entry.make(context, options if options is not None else entry.options())

    def _entry(self, name: str) -> Registered[Context, Part]:
        if name not in self._entries:
            raise InputError(self._kind, f"is {name!r}; allowed: {', '.join(self.names())}")
        return self._entries[name]
