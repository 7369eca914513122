"""The neighbourhood: links on all interfaces, neighbours, our relays, and who chose us (RFC 3626, 6 to 8).

What a HELLO changes and what a HELLO says. `links` and `mpr` are its parts.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import msgspec

from roamcast.errors import WireError
from roamcast.host import Host
from roamcast.kit.protocol import Timer
from roamcast.underlay.olsr.links import ASYMMETRIC, LOST, SYMMETRIC, LinkSet, LinkTuple
from roamcast.underlay.olsr.mpr import RelayCandidate, RelaySelection
from roamcast.underlay.olsr.options import OlsrOptions, RelayTies
from roamcast.underlay.olsr.topology import NOBODY, Associations, Deadlines
from roamcast.units import Micros, micros
from roamcast.wire.olsr import (
    WILL_NEVER,
    Address,
    Hello,
    LinkType,
    NeighbourType,
    OlsrMessage,
    decode_hello,
    encode_hello,
    link_code,
)

Item = TypeVar("Item")

NEVER: Micros = 1 << 62
ADDRESS_OCTETS = 4
# Of a packet: its header, the message's, the HELLO's own, and one for each of the link codes that are sent.
HELLO_OCTETS = 4 + 12 + 4 + 9 * 4
RELAY = int(NeighbourType.RELAY)  # this and the next: compared with every HELLO
HEARD = frozenset((SYMMETRIC, ASYMMETRIC))
# `link_code` without its link type.
CODE_RELAY, CODE_SYMMETRIC, CODE_NOT = (
    int(kind) << 2 for kind in (NeighbourType.RELAY, NeighbourType.SYMMETRIC, NeighbourType.NOT)
)


class Neighbourhood:
    def __init__(
        self,
        interfaces: tuple[Address, ...],
        options: OlsrOptions,
        willingness: int,
        associations: Associations,
        changes: "TableChanges",
        deadlines: "PurgeTimer",
        on_overflow: Callable[[str, str], None],
        on_role: Callable[[str, Micros], None],
    ) -> None:
        self._interfaces = interfaces
        self._own = interfaces[0]
        self._has_several_interfaces = len(interfaces) > 1
        self._options = options
        self._willingness = willingness
        self._associations = associations
        self._changes = changes
        self._deadlines = deadlines
        self._on_overflow = on_overflow
        self._on_role = on_role  # the selector set has become, or ceased to be, non-empty
        self._hello_interval = micros(options.hello_interval)
        self._validity_max = micros(options.validity_max)
        self._two_hop_max = options.two_hop_max
        lost_hold = None if options.lost_hold is None else micros(options.lost_hold)
        self.links = {
            interface: LinkSet(
                interface,
                micros(options.hello_interval * options.hold_intervals),
                options.links_max,
                lost_hold,
                failure_silence=micros(options.failure_silence),
                hysteresis=options.hysteresis,
            )
            for interface in interfaces
        }
        self.neighbours = Neighbours(options.two_hop_max, lambda: on_overflow("two_hop", "hello"))
        self.selectors: Deadlines[Address] = Deadlines(options.links_max)
        self.lost_relay = False  # since the last HELLO: a relay that should have forwarded our TCs
        self._relays: frozenset[Address] = frozenset()
        by_degree = options.relay_ties is not RelayTies.FIRST_HEARD
        self._selections = {
            interface: RelaySelection(self._own, by_degree=by_degree) for interface in interfaces
        }
        self._named_max = (options.packet_max - HELLO_OCTETS) // ADDRESS_OCTETS

    # Inputs.

    def on_hello(
        self, interface: Address, source: Address, message: OlsrMessage, now: Micros, packet_sequence: int
    ) -> None:
        if message.hops:
            raise WireError("HELLO hop count", 9, f"is {message.hops}; a HELLO is never relayed")
        hello, main = decode_hello(message.body), message.originator
        until = now + (message.validity if message.validity < self._validity_max else self._validity_max)
        code = hello.links.get(interface, 0)
        links = self.links[interface]
        link = links.table.get(source)
        if (
            link is not None
            and link.lost_until <= now < link.symmetric_until
            and code & 3 in HEARD
            and link.main == main
            and link.quality is None
        ):
            # `LinkSet.on_hello`, written out: nearly every HELLO only renews a symmetric link.
            link.heard_at = now
            link.heard_until = link.symmetric_until = until
            link.until = until + links.hold
        elif not self._sense(links, source, main, hello, until, now, packet_sequence):
            return
        neighbour = self.neighbours.table.get(main)
        if neighbour is not None and neighbour.hello is hello and now < neighbour.until:
            # Most HELLOs repeat the one before, and the decoder returns one object for equal bodies.
            neighbour.until = until
        elif len(hello.symmetric) > self._two_hop_max:
            self._on_overflow("two_hop", "hello")
            return
        else:
            if neighbour is None:
                self._changes.neighbours.append((True, main))
                self._associations.disown(main)
            if self.neighbours.on_hello(main, hello, until, now) or neighbour is None:
                self._changes.mark_neighbourhood()
        if until < self._deadlines.at:
            self._deadlines.by(until)
        if code >> 2 == RELAY or (
            self._has_several_interfaces
            and any(hello.links.get(interface, 0) >> 2 == RELAY for interface in self._interfaces)
        ):
            self._add_selector(main, until, now)

    def weigh(self, interface: Address, source: Address, sequence: int, now: Micros) -> None:
        """Hysteresis: this packet speaks for its link, and may make it count, or no longer count."""
        links = self.links[interface]
        known = links.table.get(source)
        before = known is not None and known.is_symmetric(now)
        link = links.on_packet(source, sequence, now)
        if link is not None and link.is_symmetric(now) is not before:
            self._changes.to_say = True
            self.check_neighbour(link.main, now)

    def on_failure(self, main: Address, now: Micros) -> bool:
        """Section 13: the link layer could not deliver to a neighbour. Whether there were links to it."""
        failed = [
            link
            for links in self.links.values()
            for source, link in list(links.table.items())
            if link.main == main and links.on_failure(source, now) is not None
        ]
        if failed:
            self.check_neighbour(main, now)
            self._deadlines.by(min(link.deadline(now) for link in failed))
        return bool(failed)

    def check_neighbour(self, main: Address, now: Micros) -> None:
        """A link is not symmetric (any more): is the neighbour lost with it (section 8.5)?"""
        if main in self.neighbours.table and not any(
            links.is_symmetric_to(main, now) for links in self.links.values()
        ):
            self.lost_relay = self.lost_relay or main in self._relays
            self.neighbours.lose(main)
            self._changes.neighbours.append((False, main))
            self._changes.mark_neighbourhood()
            if main in self.selectors:
                del self.selectors[main]
                self._selectors_shrank(now)

    def purge(self, now: Micros) -> list[Micros | None]:
        """Forget what has expired; the next deadlines."""
        deadlines: list[Micros | None] = []
        for links in self.links.values():
            if self._options.hysteresis:
                links.on_silence(now)
            for link in list(links.table.values()):
                if not link.lost_until <= now < link.symmetric_until:
                    self.check_neighbour(link.main, now)
            deadlines.append(links.purge(now))
        lost_two_hops, deadline = self.neighbours.purge(now)
        deadlines.append(deadline)
        lost_selectors, deadline = self.selectors.purge(now)
        deadlines.append(deadline)
        if lost_two_hops:
            self._changes.mark_neighbourhood()
        if lost_selectors:
            self._selectors_shrank(now)
        return deadlines

    # Questions.

    def own_relays(self, now: Micros) -> frozenset[Address]:
        """The MPR set."""
        if self._changes.relays_are_stale:
            self._changes.relays_are_stale = False
            self._relays = self._select_relays(now)
        return self._relays

    def is_overdue(self, main: Address, now: Micros) -> bool:
        """Whether the next HELLO of a neighbour has not come in time, by the interval of its last one."""
        neighbour = self.neighbours.table.get(main)
        if neighbour is None or neighbour.hello is None:
            return False
        heard = (
            link.heard_at
            for links in self.links.values()
            for link in links.table.values()
            if link.main == main
        )
        return max(heard, default=now) + neighbour.hello.interval * 9 // 8 < now  # an eighth for queues; ours

    def two_hop_neighbours(self, now: Micros) -> list[Address]:
        """Strict: neither this node nor its neighbours."""
        reached = {
            address
            for neighbour in self.neighbours.table.values()
            for address in self._associations.mains(neighbour.reached(now))
        }
        return sorted(reached - set(self.neighbours.table) - {self._own})

    def reached(self, now: Micros) -> dict[Address, frozenset[Address]]:
        """Whom each relaying neighbour reaches, by main addresses."""
        mains = self._associations.mains
        return {
            address: mains(neighbour.reached(now))
            for address, neighbour in self.neighbours.table.items()
            if neighbour.willingness != WILL_NEVER
        }

    def statuses(self, now: Micros) -> dict[Address, LinkType]:
        """The status of each link, by the neighbours' interface addresses."""
        listed = [found for links in self.links.values() for found in links.table.items()]
        return {address: link.status(now) for address, link in sorted(listed, key=lambda found: found[0])}

    def ways(self, now: Micros) -> Iterator[tuple[Address, tuple[Address, Address]]]:
        """For each neighbour, by main address: our interface and its own, of one symmetric link."""
        for interface, links in self.links.items():
            for source, link in links.table.items():
                if link.is_symmetric(now):
                    yield link.main, (interface, source)

    def hellos(self, now: Micros) -> Iterator[tuple[Address, bytes]]:
        """Section 6.2: the body of each interface's HELLO. Relays are computed now, from the tables as they
        are."""
        relays, symmetric = self.own_relays(now), self.neighbours.table
        for interface, links in self.links.items():
            by_code: dict[int, list[Address]] = {}
            for address in sorted(links.table):
                link = links.table[address]
                if now < link.until and (link.quality is None or link.is_named(now)):
                    code = _code(link, now, relays, symmetric)
                    if code in by_code:
                        by_code[code].append(address)
                    else:
                        by_code[code] = [address]
            if self._has_several_interfaces:
                self._name_others(links, relays, by_code)
            named = [(code, address) for code in sorted(by_code) for address in by_code[code]]
            for part in parts_of(named, self._named_max):
                listed = [(code, [each[1] for each in group]) for code, group in groupby(part, itemgetter(0))]
                yield interface, encode_hello(self._hello_interval, self._willingness, listed)

    def standing(self, now: Micros) -> dict[tuple[Address, Address], int]:
        """The link codes of a HELLO sent now, without lost links, which need no second HELLO."""
        relays, symmetric = self.own_relays(now), self.neighbours.table
        return {
            (interface, address): code
            for interface, links in self.links.items()
            for address, link in links.table.items()
            if (code := _code(link, now, relays, symmetric)) & 3 != LOST
        }

    # Private.

    def _sense(
        self,
        links: LinkSet,
        source: Address,
        main: Address,
        hello: Hello,
        until: Micros,
        now: Micros,
        packet_sequence: int,
    ) -> bool:
        """A HELLO over a link that was not symmetric, or is not named so now. Whether it is symmetric now."""
        known = links.table.get(source)
        before, main_before = (None, main) if known is None else (known.status(now), known.main)
        link = links.on_hello(source, main, hello, until, now, packet_sequence)
        if link is None or len(hello.symmetric) > self._two_hop_max:
            self._on_overflow("links" if link is None else "two_hop", "hello")
            return False
        if link.status(now) is not before:
            self._changes.to_say = True
        if main_before != main:
            self.check_neighbour(main_before, now)  # the interface has another owner
        self._deadlines.by(until)
        if self._options.hysteresis:
            self._deadlines.by(link.deadline(now))
        if not link.is_symmetric(now):
            self.check_neighbour(main, now)
            return False
        return True

    def _add_selector(self, main: Address, until: Micros, now: Micros) -> None:
        if main not in self.selectors:
            if not self.selectors:
                self._on_role("role_on", now)
            self._changes.mark_selectors()
        self.selectors.hold(main, until)  # always has room: its bound is that of the link set

    def _selectors_shrank(self, now: Micros) -> None:
        self._changes.mark_selectors()
        if not self.selectors:
            self._on_role("role_off", now)

    def _name_others(
        self, links: LinkSet, relays: frozenset[Address], by_code: dict[int, list[Address]]
    ) -> None:
        """Section 6.2, last step: neighbours that no link of this HELLO names, by their main addresses."""
        here = {links.table[address].main for named in by_code.values() for address in named}
        for main in sorted(self.neighbours.table.keys() - here):
            neighbour = NeighbourType.RELAY if main in relays else NeighbourType.SYMMETRIC
            by_code.setdefault(link_code(LinkType.UNSPECIFIED, neighbour), []).append(main)

    def _select_relays(self, now: Micros) -> frozenset[Address]:
        mains = self._associations.mains
        table = self.neighbours.table
        if self._options.relay_ties is RelayTies.FIRST_HEARD:
            heard = (link.main for links in self.links.values() for link in links.table.values())
            preferred = [address for address in dict.fromkeys(heard) if address in table]
        else:
            preferred = sorted(table)
        candidates: dict[Address, RelayCandidate] = {}
        for address in preferred:
            neighbour = table[address]
            if neighbour.hello is not None and now < neighbour.until and not neighbour.left_out:
                reached = neighbour.hello.symmetric  # `reached`, written out for nearly all neighbours
            else:
                reached = neighbour.reached(now)
            candidates[address] = neighbour.willingness, mains(reached)
        if not self._has_several_interfaces:
            return self._selections[self._own].select(candidates)
        chosen: set[Address] = set()
        for interface, selection in self._selections.items():  # section 8.3: a set for each, and their union
            here = {link.main for link in self.links[interface].table.values() if link.is_symmetric(now)}
            there = {address: found for address, found in candidates.items() if address in here}
            chosen |= selection.select(there, table)
        return frozenset(chosen)


def _code(link: LinkTuple, now: Micros, relays: frozenset[Address], symmetric: Container[Address]) -> int:
    """Section 6.2: what a HELLO says of a link and of the neighbour behind it."""
    neighbour = CODE_SYMMETRIC if link.main in symmetric else CODE_NOT
    if link.main in relays:
        neighbour = CODE_RELAY
    if link.lost_until <= now:  # `status`, written out: each HELLO sent asks it of each link
        if now < link.symmetric_until:
            # Also where no HELLO came since the link counts again: 6.1.1 has no SYM_LINK with NOT_NEIGH.
            return (neighbour or CODE_SYMMETRIC) | SYMMETRIC
        if now < link.heard_until:
            return neighbour | ASYMMETRIC
    return neighbour | LOST


def parts_of(items: Sequence[Item], most: int) -> list[Sequence[Item]]:
    """What does not fit one message goes in several (sections 6.2 and 9.3); nothing goes in one."""
    return [items[at : at + most] for at in range(0, max(1, len(items)), most)]


class Neighbour(msgspec.Struct, eq=False):
    """A symmetric neighbour and the 2-hop tuples that came through it.

    The RFC keeps one tuple with a deadline per pair of neighbour and 2-hop neighbour. Nearly every HELLO
    repeats the one before, so here a neighbour's latest HELLO stands for all tuples that it renews, under one
    deadline, and only addresses that the latest HELLO left out keep a deadline of their own."""

    willingness: int = WILL_NEVER
    hello: Hello | None = None
    until: Micros = 0  # for all addresses that the latest HELLO names
    left_out: dict[Address, Micros] = {}  # named by an earlier HELLO, with their own deadlines

    def reached(self, now: Micros) -> frozenset[Address]:
        """Addresses of its symmetric neighbours; this node may be among them."""
        named = self.hello.symmetric if self.hello is not None and now < self.until else NOBODY
        if not self.left_out:
            return named
        return named.union(address for address, until in self.left_out.items() if now < until)


class Neighbours:
    """How willing they are to relay, and whom they reach (sections 8.1 and 8.2)."""

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


class TableChanges(msgspec.Struct):
    """What has changed since it was last computed, said or reported. Tables that follow from others (our
    relays, the routes) are only marked here, and computed when somebody asks."""

    relays_are_stale: bool = False
    routes_are_stale: bool = False
    to_say: bool = False  # whether the next HELLO or TC may differ from the last one
    to_report: bool = False  # whether the listener must hear of routes or relays
    neighbours: list[tuple[bool, Address]] = []  # gained (True) or lost, to be reported

    def mark_neighbourhood(self) -> None:
        self.relays_are_stale = True
        self.to_say = True
        self.mark_routes()

    def mark_routes(self) -> None:
        self.routes_are_stale = True
        self.to_report = True

    def mark_selectors(self) -> None:
        self.to_report = self.to_say = True


class PurgeTimer:
    """Set for the earliest of all deadlines. A renewal moves a deadline but not the timer, which then finds
    nothing to do and is set for the next."""

    def __init__(self, host: Host, purge: Callable[[], object]) -> None:
        self._timer = Timer(host, self._due)
        self._purge = purge
        self.at: Micros = NEVER

    def by(self, deadline: Micros) -> None:
        if deadline < self.at:
            self.at = deadline
            self._timer.at(deadline)

    def _due(self) -> None:
        self.at = NEVER
        self._purge()
