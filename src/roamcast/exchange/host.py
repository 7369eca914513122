"""What exchanges need of the node's runtime."""

from collections.abc import Callable
from typing import Protocol

from roamcast.units import Micros, NodeId


class ExchangeHost(Protocol):
    @property
    def number(self) -> NodeId: ...

    @property
    def name(self) -> str: ...

    def now(self) -> Micros:
        """The node's clock."""
        ...

    def later(self, delay: Micros, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` after this time, as an input of its own. What is returned cancels it."""
        ...

    def heard(self) -> int:
        """How many nodes are heard directly now."""
        ...
