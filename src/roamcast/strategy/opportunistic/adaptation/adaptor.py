"""What an adaptor is (section 3.5): a small class that subscribes to system events and reacts to them.

A new one is a subclass that is added to `ADAPTORS` before the node starts; the option `adaptors` then names
it. Nothing else has to change. `docs/adaptors.md` shows one.
"""

from typing import Any

from roamcast.errors import InputError
from roamcast.strategy.opportunistic.adaptation.services import Services


class Adaptor:
    def __init__(self, services: Services) -> None:
        self.brokers, self.clients, self.relocation, self.directory, self.channel, self.limits = services

    def subscribe(self) -> None:
        """Register with `self.channel` for the events that matter."""
        raise NotImplementedError

    def process(self, event: Any) -> None:
        """React. Called for each such event, with the clock standing still."""
        raise NotImplementedError


ADAPTORS: dict[str, type[Adaptor]] = {}
"""By name, as the option `adaptors` says them. An application adds its own before its node starts."""


def start(names: tuple[str, ...], services: Services) -> list[Adaptor]:
    """The adaptors of one broker, listening."""
    unknown = [name for name in names if name not in ADAPTORS]
    if unknown:
        raise InputError(
            "strategy.options.adaptors", f"has {unknown[0]!r}; allowed: {', '.join(sorted(ADAPTORS))}"
        )
    adaptors = [ADAPTORS[name](services) for name in names]
    for adaptor in adaptors:
        adaptor.subscribe()
    return adaptors
