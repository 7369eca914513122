"""The statements that this node knows (`sealing/statement.py`): kept over restarts, told to all it meets.

A new one is broadcast at once; all of them are said to a peer that has just been met, and again every minute,
so that a lost datagram is no loss. This is below the strategies: who is excluded must not depend on what is
subscribed to.

Whoever has the group key can make identities without end, and each may state something. So room for words
about devices goes by acquaintance: of a full table the word of the member that this node has met last makes
room, and only for the word of one met earlier; else the new one is refused. So members who come later push
nothing out. A neighbour can bring a new one every second. What comes from the air is written to the disk once
a second: a crash before that is made good by the next neighbour.
"""

import logging
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Protocol

import msgspec

from roamcast.errors import InputError, RoamcastError, WireError
from roamcast.kit.rates import Bucket
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.runtime.live.report.counters import Counters, LineLimit
from roamcast.runtime.live.report.names import NAMES_MAX, Names
from roamcast.runtime.live.storage.database import CLOCK_SET
from roamcast.runtime.live.world import NodeWorld
from roamcast.sealing.identity import DERIVED_FROM, Identity
from roamcast.sealing.statement import Kind, Statement, decode_statement, make_statement
from roamcast.units import SECOND, Micros, NodeId

logger = logging.getLogger("roamcast.members")

# Chosen by us.
DEVICES_MAX = 256  # that something is said about
JOINED_MAX = 128  # devices that said by which invitation they came, the latest
OF_ISSUER_MAX = 64  # more of one member than a person would make
MEMBERS_MAX = 4_096  # that this node remembers to have met, the first
CARRIERS_MAX = 256  # neighbours whose pace is known
PACE: Micros = SECOND  # between two new ones of one neighbour, in the long run,
BURST = 64  # and so many at once: when two meet
AHEAD_MAX = 86_400  # seconds that a statement may be ahead of our clock
NAMES_TOLD = 64  # to a peer that was just met, and
NAMES_REPEATED = 4  # every minute to everyone, others each time: names cost 150 octets each
LINES_PER_MINUTE = 20
NAMED = b"\xa5named"  # how a statement of that kind goes on after its first octet
_KEPT = "statements"
_KEPT_MEMBERS = "members met"
_KEPT_BEFORE = "statement "  # one value for each, as version 0.2 wrote them


class StatementsOwner(Protocol):
    """The radio."""

    def on_revoked(self, node: NodeId) -> None: ...

    def on_pardoned(self, node: NodeId) -> None: ...

    def public_key(self, node: NodeId) -> bytes | None:
        """The public key of the holder of a number, if this node has met it."""


class Statements:
    def __init__(
        self,
        identity: Identity,
        stored: MutableMapping[str, bytes],
        world: NodeWorld,
        counters: Counters,
        owner: StatementsOwner,
        names: Names,
    ) -> None:
        self._identity = identity
        self._world = world
        self._owner = owner
        self._names = names
        self._stored = stored
        self._counters = counters
        self._log = LineLimit(logger, LINES_PER_MINUTE)
        self._octets: set[bytes] = set()  # of those that stand: most that come are known
        self._devices: dict[NodeId, Statement] = {}  # of what is said about a device the latest stands
        self._joined: BoundedDict[NodeId, Statement] = BoundedDict(JOINED_MAX, self._on_evicted)
        self._named: dict[NodeId, Statement] = {}  # what nodes are called, each by its own word
        self._members: dict[NodeId, int] = {}  # in the order in which this node met them, with their places
        self._carriers: BoundedDict[tuple[NodeId, bool], Bucket] = BoundedDict(CARRIERS_MAX, unreported)
        self._waiting: BoundedDict[NodeId, bytes] = BoundedDict(
            CARRIERS_MAX, unreported
        )  # to meet the issuer
        self._is_unsaved = False
        self._restore()

    def revoked(self) -> list[NodeId]:
        return sorted(device for device, one in self._devices.items() if one.kind == "revoke")

    def shared_invitations(self) -> dict[str, list[NodeId]]:
        """Invitations by which more than one device came, and which devices."""
        users: dict[str, list[NodeId]] = {}
        for one in self._joined.values():
            users.setdefault(one.subject, []).append(one.issuer)
        return {subject: sorted(nodes) for subject, nodes in users.items() if len(nodes) > 1}

    def issue(self, kind: Kind, subject: str) -> bytes | None:
        """Make a statement; the octets to broadcast, None if it stands already."""
        if kind == "revoke" and subject == str(self._identity.node):
            raise InputError(f"node {subject}", "is this one; revoke it on another member")
        at = self._world.wall() // SECOND
        statement = make_statement(self._identity, kind, subject, at)
        before = self._before(statement)
        if before is not None and (before.kind, before.subject) == (kind, subject):
            return None
        if before is not None and before.at >= at:
            statement = make_statement(self._identity, kind, subject, before.at + 1)
        if not self._makes_room(statement):
            raise InputError("statements", f"of this node alone are {DEVICES_MAX}; change the group key")
        self._take(statement)
        self.save()
        return statement.encode()

    def on_met(self, node: NodeId) -> list[bytes]:
        """A member has proven itself to this node; what is to be passed on because of that."""
        if node not in self._members and len(self._members) < MEMBERS_MAX:
            self._members[node] = len(self._members)
            self._is_unsaved = True
        waiting = self._waiting.pop(node, None)
        return [waiting] if waiting is not None and self.on_octets(waiting, node) else []

    def on_octets(self, data: bytes, carrier: NodeId) -> bool:
        """From the air: True for one that is new to us and is to be passed on. `carrier`: whose frame it was
        in."""
        if data in self._octets:
            return False
        # Names have a pace of their own, so that no revocation waits behind them.
        pace = self._carriers.setdefault((carrier, data[1:7] == NAMED), Bucket(PACE, BURST))
        now = self._now()
        if pace.earliest(now) > now:  # it comes again within a minute, if it stands there
            self._counters.count("statements_refused_total", reason="too_fast")
            return False
        pace.spend(now)
        try:
            statement = decode_statement(data)
        except WireError as error:
            self._refuse("unreadable", error)
            return False
        if (problem := self._objection(statement)) is not None:
            self._refuse(problem, statement)
            return False
        self._take(statement)
        return True

    def save(self) -> None:
        """Write down what is new; the runtime calls it every second."""
        if not self._is_unsaved:
            return
        self._is_unsaved = False
        with suppress(RoamcastError):  # a full disk: then it lasts until the next boot, or the next peer
            self._stored[_KEPT] = msgspec.msgpack.encode(sorted(self._octets))
            self._stored[_KEPT_MEMBERS] = msgspec.msgpack.encode(list(self._members))
            for name in [name for name in self._stored if name.startswith(_KEPT_BEFORE)]:
                del self._stored[name]

    def to_tell(self, names_max: int) -> list[bytes]:
        """All words about membership, our own name, and some names of others."""
        said = [*self._devices.values(), *self._joined.values()]
        own = self._named.get(self._identity.node)
        others = [one for one in self._named.values() if one is not own]
        some = self._world.random.sample(others, min(len(others), names_max))
        return [one.encode() for one in (*said, *([own] if own else []), *some)]

    # Private.

    def _restore(self) -> None:
        stored = self._stored
        octets = [stored[name] for name in stored if name.startswith(_KEPT_BEFORE)]
        with suppress(msgspec.DecodeError):
            for node in _numbers.decode(stored.get(_KEPT_MEMBERS, b"\x90")):
                self.on_met(node)
            octets += _list.decode(stored.get(_KEPT, b"\x90"))
        for one in octets:
            with suppress(WireError):  # of a later version, or damaged
                self._enter(decode_statement(one))

    def _before(self, statement: Statement) -> Statement | None:
        """The statement that stands in its place."""
        if statement.device is not None:
            return self._devices.get(statement.device)
        return (self._named if statement.kind == "named" else self._joined).get(statement.issuer)

    def _objection(self, statement: Statement) -> str | None:
        before = self._before(statement)
        if before is not None and (before.at, before.kind) >= (statement.at, statement.kind):
            return "superseded"
        revoker = self._devices.get(statement.issuer)
        if revoker is not None and revoker.kind == "revoke":
            return "of_a_revoked_device"
        # Any key may claim a configured number: only a node that has met its holder knows the right key.
        is_derived = statement.issuer >= DERIVED_FROM
        if not is_derived and self._owner.public_key(statement.issuer) != statement.public_key:
            if statement.kind != "named":  # it says its name itself when it is met
                self._waiting[statement.issuer] = statement.encode()
            return "issuer_not_met"
        now = self._world.wall()
        if now >= CLOCK_SET and statement.at > now // SECOND + AHEAD_MAX:
            return "from_the_future"
        if sum(one.issuer == statement.issuer for one in self._devices.values()) >= OF_ISSUER_MAX:
            return "too_many"
        return None if self._makes_room(statement) else "full"

    def _makes_room(self, statement: Statement) -> bool:
        """Whether there is room for it, now if not before."""
        if statement.kind == "named":
            return statement.issuer in self._named or self._has_room_for_name(statement.issuer)
        if statement.device is None or statement.device in self._devices or len(self._devices) < DEVICES_MAX:
            return True
        last = max(self._devices, key=lambda device: self._acquaintance(self._devices[device]))
        if self._acquaintance(self._devices[last])[0] <= self._acquaintance(statement)[0]:
            return False
        self._on_evicted(last, self._devices.pop(last))
        self._owner.on_pardoned(last)
        return True

    def _has_room_for_name(self, node: NodeId) -> bool:
        """Of a full table the name of a node that was never met makes room, for one that was."""
        if len(self._named) < NAMES_MAX:
            return True
        strange = next((one for one in self._named if one not in self._members), None)
        if strange is None or (node not in self._members and node != self._identity.node):
            return False
        self._names.pop(strange, None)
        self._on_evicted(strange, self._named.pop(strange))
        return True

    def _acquaintance(self, statement: Statement) -> tuple[int, int]:
        """When this node met its issuer, first of all itself; of one issuer by date."""
        if statement.issuer == self._identity.node:
            return -1, statement.at
        return self._members.get(statement.issuer, MEMBERS_MAX), statement.at

    def _enter(self, statement: Statement) -> None:
        if (before := self._before(statement)) is not None:
            self._octets.discard(before.encode())
        if statement.kind == "named":
            self._named[statement.issuer] = statement
            self._names[statement.issuer] = statement.subject
        elif statement.device is None:
            self._joined.renew(statement.issuer, statement)
        else:
            self._devices[statement.device] = statement
        self._octets.add(statement.encode())

    def _take(self, statement: Statement) -> None:
        before = self._before(statement)
        self._enter(statement)
        self._is_unsaved = True
        now, device, called = self._now(), statement.device, self._names.called
        if statement.kind == "revoke" and device is not None:
            own = device == self._identity.node
            what = "this node was revoked" if own else f"{called(device)} is revoked"
            self._log.log(now, logging.WARNING, "%s, says %s", what, called(statement.issuer))
            self._owner.on_revoked(device)
        elif statement.kind == "pardon" and device is not None:
            if before is not None:  # else it is history from before this node came
                said = "%s is accepted again, says %s"
                self._log.log(now, logging.INFO, said, called(device), called(statement.issuer))
            self._owner.on_pardoned(device)
        elif statement.kind == "named":
            self._say_name(statement)
        elif (users := self.shared_invitations().get(statement.subject)) is not None:
            said = "one invitation was used by several devices: %s"
            self._log.log(now, logging.ERROR, said, ", ".join(map(called, users)))

    def _say_name(self, statement: Statement) -> None:
        name, holders = statement.subject, self._names.shared(self.revoked()).get(statement.subject)
        if holders is not None:
            said = "several nodes are called %s: %s; give each a name of its own"
            self._log.log(self._now(), logging.WARNING, said, name, ", ".join(map(str, holders)))
        elif statement.issuer != self._identity.node:
            self._log.log(self._now(), logging.INFO, "node %d is called %s", statement.issuer, name)

    def _now(self) -> Micros:
        return self._world.clock.monotonic_ns() // 1_000

    def _refuse(self, reason: str, what: object) -> None:
        self._counters.count("statements_refused_total", reason=reason)
        logger.debug("a statement is refused (%s): %s", reason, what)

    def _on_evicted(self, key: NodeId, statement: Statement) -> None:
        self._counters.count("table_evictions_total", table="statements")
        self._octets.discard(statement.encode())


_list = msgspec.msgpack.Decoder(list[bytes])
_numbers = msgspec.msgpack.Decoder(list[NodeId])
