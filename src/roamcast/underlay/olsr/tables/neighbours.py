"""Symmetric neighbours, how willing they are to relay, and whom they reach (RFC 3626, section 8.1 and 8.2).

The RFC keeps one tuple with a deadline per pair of neighbour and 2-hop neighbour. Nearly every HELLO
repeats the one before, so here a neighbour's latest HELLO stands for all tuples that it renews, under one
deadline, and only addresses that the latest HELLO left out keep a deadline of their own.
"""

from collections.abc import Callable

from roamcast.units import Micros
from roamcast.wire.olsr import WILL_NEVER, Address, Hello

NOBODY: frozenset[Address] = frozenset()


class Neighbour:
    """A symmetric neighbour and the 2-hop tuples that came through it."""

    __slots__ = ("hello", "left_out", "until", "willingness")

    def __init__(self) -> None:
        self.willingness = WILL_NEVER
        self.hello: Hello | None = None
        self.until: Micros = 0  # for all addresses that the latest HELLO names
        self.left_out: dict[Address, Micros] = {}  # named by an earlier HELLO, with their own deadlines

    def reached(self, now: Micros) -> frozenset[Address]:
        """Addresses of its symmetric neighbours; this node may be among them."""
        named = self.hello.symmetric if self.hello is not None and now < self.until else NOBODY
        if not self.left_out:
            return named
        return named.union(address for address, until in self.left_out.items() if now < until)


class Neighbours:
    def __init__(self, two_hop_max: int, on_overflow: Callable[[], object]) -> None:
        self._two_hop_max = two_hop_max  # addresses kept per neighbour
        self._on_overflow = on_overflow
        self._purge_at: Micros | None = None  # no deadline is earlier
        self.table: dict[Address, Neighbour] = {}  # by main address

    def on_hello(self, main: Address, hello: Hello, until: Micros, now: Micros) -> bool:
        """A HELLO over a symmetric link (section 8.2.1). Whether willingness or 2-hop neighbours changed."""
        if self._purge_at is None or until < self._purge_at:
            self._purge_at = until
        neighbour = self.table.get(main)
        if neighbour is None:
            neighbour = self.table[main] = Neighbour()
        elif neighbour.hello is not None and now < neighbour.until and not neighbour.left_out:
            # Half of the HELLOs that differ from the one before name the same neighbours, by other codes.
            said = neighbour.hello
            if hello.symmetric == said.symmetric and hello.willingness == said.willingness:
                neighbour.hello, neighbour.until = hello, until
                return False
        before = neighbour.willingness, neighbour.reached(now)
        self._renew(neighbour, hello, until, now)
        return before != (neighbour.willingness, neighbour.reached(now))

    def lose(self, main: Address) -> None:
        """Remove a neighbour and the 2-hop tuples through it (section 8.5)."""
        del self.table[main]

    def symmetric(self) -> list[Address]:
        return sorted(self.table)

    def purge(self, now: Micros) -> tuple[bool, Micros | None]:
        """Whether 2-hop neighbours expired, and a time before which no other will."""
        if self._purge_at is None or now < self._purge_at:
            return False, self._purge_at
        changed = False
        deadlines: list[Micros] = []
        for neighbour in self.table.values():
            if neighbour.hello is not None and neighbour.until <= now:
                neighbour.hello, changed = None, True
            if neighbour.left_out:
                kept = {address: until for address, until in neighbour.left_out.items() if now < until}
                changed = changed or len(kept) < len(neighbour.left_out)
                neighbour.left_out = kept
                deadlines.extend(kept.values())
            if neighbour.hello is not None:
                deadlines.append(neighbour.until)
        self._purge_at = min(deadlines, default=None)
        return changed, self._purge_at

    def _renew(self, neighbour: Neighbour, hello: Hello, until: Micros, now: Micros) -> None:
        if neighbour.hello is not None and now < neighbour.until:
            for address in neighbour.hello.symmetric - hello.links.keys():
                neighbour.left_out[address] = neighbour.until
        if neighbour.left_out:
            neighbour.left_out = {
                address: end
                for address, end in neighbour.left_out.items()
                if now < end and address not in hello.links
            }
            if len(hello.symmetric) + len(neighbour.left_out) > self._two_hop_max:
                neighbour.left_out = {}  # no room: forget early those that the HELLO does not name
                self._on_overflow()
        neighbour.hello = hello
        neighbour.until = until
        neighbour.willingness = hello.willingness
