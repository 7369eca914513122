"""All interfaces of a node, as they come and go: everyone is told on each of them, a neighbour by its path.

The interfaces are those that the file names, or else those that this machine has (`interface.chosen`). One
that is named and not there is waited for. The kernel says when something changes (`InterfaceWatch`), and a
look every second finds what it did not say.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from roamcast.errors import InputError
from roamcast.runtime.live.air.interface import Endpoint, InterfaceWatch, chosen, left_out
from roamcast.runtime.live.air.sockets import InterfaceSockets
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.settings import AirFamily, AirSettings
from roamcast.runtime.live.world import Interface, NodeWorld, UnreadDatagrams

logger = logging.getLogger("roamcast.air")

# Chosen by us.
WATCH_SECONDS = 1.0  # between two looks at the interfaces
CHANGE_SECONDS = 0.01  # from the kernel's message to a look
LOOKS_PER_CHOICE = 10  # where none is named: how often all of the machine's are looked at, unless the kernel
# says that something changed
SPOKEN_SECONDS = 10.0  # IPv6 is used beside IPv4 for so long after somebody was heard there
DATAGRAM_BYTES = 1_232  # while no interface is there: what IPv6 promises of any


class AirOwner(Protocol):
    """The radio."""

    def on_datagram(self, data: bytes, source: Endpoint) -> None: ...

    def on_opened(self, sockets: InterfaceSockets) -> None:
        """They have a new listener."""

    def on_closing(self, sockets: InterfaceSockets) -> None: ...

    def on_away(self, interface: str, *, is_ipv6: bool) -> None: ...

    def on_unreached(self, endpoint: Endpoint) -> None:
        """A datagram to it cannot be sent because of the interface."""


class UsedInterface:
    """An interface that is used, or waited for. `sockets` are by family; True is IPv6."""

    def __init__(self, name: str, seen: Interface | None) -> None:
        self.name = name
        self.seen = seen  # as it was when it was last there
        self.sockets: dict[bool, InterfaceSockets] = {}
        self.trouble = ""  # why it is not used, as it was said last

    @property
    def working(self) -> list[InterfaceSockets]:
        """IPv4 first."""
        return [self.sockets[key] for key in sorted(self.sockets) if not self.sockets[key].is_away]

    @property
    def is_up(self) -> bool:
        return bool(self.working)


class Air:
    """Open between `open` and `close`."""

    def __init__(
        self,
        world: NodeWorld,
        settings: AirSettings,
        wanted: Sequence[str],
        counters: Counters,
        owner: AirOwner,
    ) -> None:
        """`wanted`: the interfaces' names, the preferred ones first; none: those that this machine has."""
        self._world = world
        self._loop = world.loop
        self._settings = settings
        self._wanted = wanted
        self._counters = counters
        self._owner = owner
        self.on_datagram = owner.on_datagram  # of the sockets, without a step in between
        self._used: dict[str, UsedInterface] = {}
        self._spoken: list[InterfaceSockets] = []  # on which everyone is told
        self._own: set[tuple[str, int]] = set()  # where our own datagrams come from
        self._watch = InterfaceWatch(world, self._on_change)
        self._look: asyncio.TimerHandle | None = None
        self._changed: asyncio.TimerHandle | None = None
        self._looks = 0
        self.datagram_bytes = DATAGRAM_BYTES  # that fit a datagram on every interface without fragmentation
        for name in wanted or [found.name for found in chosen(world.network)]:
            self._use(name)

    def open(self) -> None:
        """Open the sockets on all interfaces that are there; `InputError` if one is refused."""
        self._watch.open()
        for used in list(self._used.values()):
            self._update(used, is_first=True)
        self._settle()
        if not self._wanted and (others := left_out(self._world.network, list(self._used))):
            said = "not used: %s; [air] interfaces in the file names those to use"
            logger.info(said, ", ".join(others))
        if not self._spoken:
            logger.warning("no interface is there; local clients are served, and the node waits for one")
        self._look = self._loop.call_later(WATCH_SECONDS, self._on_look)

    def close(self) -> None:
        self._watch.close()
        for handle in (self._look, self._changed):
            if handle is not None:
                handle.cancel()
        for sockets in self._all():
            self._close(sockets)

    # Sending.

    def broadcast(self, data: bytes) -> None:
        """To everyone, on every interface. Who hears it twice takes it once (`roamcast.sealing`)."""
        for sockets in self._spoken:
            sockets.send(data, None)
        if not self._spoken:
            self._counters.count("datagrams_unsent_total", reason="away")

    def broadcast_each(self, make: Callable[[], bytes]) -> None:
        """A datagram of its own on each interface, so that each is known to be heard."""
        for sockets in list(self._spoken):
            sockets.send(make(), None)

    def send(self, data: bytes, to: Endpoint) -> None:
        used = self._used.get(to.interface)
        sockets = None if used is None else used.sockets.get(to.is_ipv6)
        if sockets is None:
            self._counters.count("datagrams_unsent_total", reason="away")
        else:
            sockets.send(data, to)

    # Questions.

    @property
    def used(self) -> list[UsedInterface]:
        return list(self._used.values())

    @property
    def ipv4(self) -> Interface | None:
        """The preferred interface with an IPv4 address, for routing daemons that know no other."""
        seen = (used.seen for used in self._used.values())
        return next((found for found in seen if found is not None and found.up and found.address), None)

    @property
    def port(self) -> int:
        """The node's own on the preferred interface."""
        ports = (sockets.port for used in self._used.values() for sockets in used.working)
        return next(ports, 0)

    @property
    def is_several(self) -> bool:
        return len(self._spoken) > 1

    def rank(self, interface: str) -> int:
        """Which interface is preferred where several lead to a neighbour equally well: the lower."""
        if interface in self._wanted:
            return self._wanted.index(interface)
        return len(self._wanted) + self._world.network.is_wireless(interface)

    def metered(self, value: Callable[[UsedInterface], float]) -> list[tuple[str, float]]:
        """A value by interface."""
        return [(used.name, value(used)) for used in self._used.values()]

    def dropped_by_kernel(self) -> int:
        """Datagrams that came faster than we read them, since the sockets were opened."""
        return self.unread().dropped

    def unread(self) -> UnreadDatagrams:
        """What the kernel says of our sockets."""
        return self._world.network.unread(opened for sockets in self._all() for opened in sockets.opened())

    def unsent(self) -> int:
        """Octets that wait to be sent, by the interface that has the most: what is broadcast goes by all."""
        return max((sockets.unsent() for sockets in self._all()), default=0)

    # Inputs from above.

    def on_authentic(self, source: Endpoint) -> None:
        """A member of the group was heard. One that speaks IPv6 where we have both has IPv6 only."""
        if source.is_ipv6 and (used := self._used.get(source.interface)) is not None:
            sockets = used.sockets.get(True)
            if sockets is not None and not sockets.is_alone:
                was_spoken = sockets in self._spoken
                sockets.spoken_until = self._loop.time() + SPOKEN_SECONDS
                if not was_spoken:
                    self._settle()

    # Inputs from the sockets.

    def is_own(self, address: str, port: int) -> bool:
        """Whether a datagram came from ourselves: the kernel gives us our own broadcasts too."""
        return (address, port) in self._own

    def on_unreachable(self, sockets: InterfaceSockets, to: Endpoint | None) -> None:
        """A datagram to a node, or to everyone (None), cannot be sent because of the interface."""
        if to is not None:
            self._owner.on_unreached(to)
        elif not sockets.is_away:
            self._lose(sockets)
            self._settle()

    # The interfaces.

    def _on_change(self) -> None:
        """A little later: changes come in groups."""
        self._looks = 0
        if self._changed is None:
            self._changed = self._loop.call_later(CHANGE_SECONDS, self._look_now)

    def _on_look(self) -> None:
        self._look = self._loop.call_later(WATCH_SECONDS, self._on_look)
        if not any(used.is_up for used in self._used.values()):
            self._counters.count("interface_away_seconds_total", WATCH_SECONDS)
        self._look_now()

    def _look_now(self) -> None:
        if self._changed is not None:
            self._changed.cancel()
            self._changed = None
        if not self._wanted and self._looks % LOOKS_PER_CHOICE == 0:
            self._choose()
        self._looks += 1
        for used in list(self._used.values()):
            self._update(used)
        self._settle()

    def _choose(self) -> None:
        """What was used is waited for. Other interfaces only serve while there is no hardware, the loopback
        only while there is nothing else."""
        network = self._world.network
        found = chosen(network)
        before = [used.seen for used in self._used.values() if used.seen]
        hardware = {one.name for one in (*before, *found) if network.is_hardware(one)}
        others = {one.name for one in before if not one.loopback} or {one.name for one in found}
        keep = hardware or others or set(self._used)
        for used in [one for one in self._used.values() if one.name not in keep]:
            logger.info("interface %s is not used any more", used.name)
            for sockets in used.sockets.values():
                self._lose(sockets)
                self._close(sockets)
            del self._used[used.name]
        for name in sorted(keep - set(self._used)):
            self._use(name)

    def _use(self, name: str) -> None:
        self._used[name] = UsedInterface(name, self._world.network.look(name))

    def _update(self, used: UsedInterface, *, is_first: bool = False) -> None:
        now, was_up = self._world.network.look(used.name), used.is_up
        used.seen = now if now is not None else used.seen
        families = _families(now, self._settings.family)
        if not families:
            self._say_away(used, now)
        for is_ipv6, sockets in used.sockets.items():
            sockets.is_deaf = is_ipv6 not in families
            if sockets.is_deaf:
                self._lose(sockets)
        for is_ipv6 in families:
            assert now is not None
            found = used.sockets.get(is_ipv6)
            if found is None or not found.is_open or found.interface.number != now.number:
                self._open(used, now, is_ipv6, is_first=is_first)
            elif found.is_away or found.interface != now:
                self._renew(used, found, now)
        ipv6 = used.sockets.get(True)
        if ipv6 is not None and not ipv6.is_away:
            ipv6.stand_alone(False not in families)
        if used.is_up:
            used.trouble = ""
            if not was_up and not is_first:
                logger.info("interface %s is there, with %s", used.name, used.working[0].address)

    def _say_away(self, used: UsedInterface, now: Interface | None) -> None:
        if now is None:
            why = f"is not there; here are {', '.join(self._world.network.names())}"
        elif not now.up:
            why = "is down or not connected"
        else:
            why = f"has no address{'' if self._settings.family is AirFamily.AUTO else ' of air.family'}"
        self._say(used, why)

    def _say(self, used: UsedInterface, trouble: str) -> None:
        if trouble != used.trouble:
            used.trouble = trouble
            logger.warning("interface %s %s; waiting for it", used.name, trouble)

    def _open(self, used: UsedInterface, now: Interface, is_ipv6: bool, *, is_first: bool) -> None:
        before = used.sockets.get(is_ipv6)
        sockets = InterfaceSockets(self._world, self._settings, now, self._counters, self, is_ipv6=is_ipv6)
        if before is not None:
            self._close(before)
            sockets.port = before.port  # that neighbours know
            sockets.is_away = before.is_away
        try:
            sockets.open()
        except InputError as error:
            if is_first and not (is_ipv6 and used.sockets):  # with IPv4 it does without
                raise
            sockets.is_away = True
            used.sockets[is_ipv6] = sockets
            self._say(used, f"cannot be used: {error}")
            return
        sockets.is_away = False
        used.sockets[is_ipv6] = sockets
        if not is_first:
            self._counters.count("interface_reopened_total" if before else "interface_changes_total")
        self._owner.on_opened(sockets)

    def _renew(self, used: UsedInterface, sockets: InterfaceSockets, now: Interface) -> None:
        """Renew the sockets of an interface that is back, or has another address or MTU."""
        before = sockets.address
        was_away, sockets.is_away, sockets.interface = sockets.is_away, False, now
        if sockets.address != before:
            logger.info("interface %s changed its address from %s to %s", now.name, before, sockets.address)
        elif not was_away:
            return
        self._counters.count("interface_changes_total")
        # The kernel leaves a multicast group when the interface goes down; joining needs a new socket.
        if sockets.is_multicast:
            self._open(used, now, sockets.is_ipv6, is_first=False)

    def _lose(self, sockets: InterfaceSockets) -> None:
        if not sockets.is_away:
            sockets.is_away = True
            self._owner.on_away(sockets.interface.name, is_ipv6=sockets.is_ipv6)

    def _close(self, sockets: InterfaceSockets) -> None:
        self._owner.on_closing(sockets)
        sockets.close()

    def _all(self) -> Iterator[InterfaceSockets]:
        return (sockets for used in self._used.values() for sockets in used.sockets.values())

    def _settle(self) -> None:
        """Update what follows from the state of all interfaces."""
        now = self._loop.time()
        working = [
            sockets
            for used in sorted(self._used.values(), key=lambda one: self.rank(one.name))
            for sockets in used.working
        ]
        self._spoken = [one for one in working if not one.is_ipv6 or one.is_alone or one.spoken_until > now]
        self._own = {(sockets.address, sockets.port) for sockets in self._all()}
        if self._spoken:
            self.datagram_bytes = min(sockets.datagram_bytes for sockets in self._spoken)


def _families(now: Interface | None, wanted: AirFamily) -> list[bool]:
    """Those that an interface can be used with, IPv4 first; True is IPv6."""
    if now is None or not now.up:
        return []
    has_ipv4 = now.address is not None and wanted is not AirFamily.IPV6
    has_ipv6 = now.link_local is not None and wanted is not AirFamily.IPV4
    return [False] * has_ipv4 + [True] * has_ipv6
