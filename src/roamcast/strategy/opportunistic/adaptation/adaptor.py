"""What an adaptor is (section 3.5): a small class that subscribes to system events and reacts to them.

A new one is a subclass that is added to `ADAPTORS` before the node starts; the option `adaptors` then names
it. Nothing else has to change. `docs/protocols/adaptors.md` shows one.
"""

from typing import Any

from roamcast.errors import ScenarioError
from roamcast.strategy.opportunistic.adaptation.services import Services


class Adaptor:
    def __init__(self, services: Services) -> None:
        self.brokers = services.brokers
        self.clients = services.clients
        self.relocation = services.relocation
        self.directory = services.directory
        self.channel = services.channel
        self.limits = services.limits
        self.monitor = services.monitor
        self.latencies = services.latencies

    def subscribe(self) -> None:
        """Register with `self.channel` for the events that matter."""
        raise NotImplementedError

    def process(self, event: Any) -> None:
        """React. Called for each such event, with the clock standing still."""
        raise NotImplementedError


ADAPTORS: dict[str, type[Adaptor]] = {}
"""By name, as the option `adaptors` says them. An application adds its own before its node starts."""


def check(names: tuple[str, ...]) -> None:
    """ScenarioError for a name that no adaptor has, and for one that comes twice: it would act twice."""
    for place, name in enumerate(names):
        if name not in ADAPTORS:
            raise ScenarioError(
                "strategy.options.adaptors", f"has {name!r}; allowed: {', '.join(sorted(ADAPTORS))}"
            )
        if name in names[:place]:
            raise ScenarioError("strategy.options.adaptors", f"has {name!r} twice; allowed: once")


def start(names: tuple[str, ...], services: Services) -> list[Adaptor]:
    """The adaptors of one broker, listening."""
    check(names)
    adaptors = [ADAPTORS[name](services) for name in names]
    for adaptor in adaptors:
        adaptor.subscribe()
    return adaptors
