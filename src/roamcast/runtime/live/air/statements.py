"""The statements that this node knows (`sealing/statement.py`): kept over restarts, told to all it meets.

A new one is broadcast at once; all of them are said to a peer that has just been met, and again every minute,
so that a lost datagram is no loss. This is below the strategies: who is excluded must not depend on what is
subscribed to.
"""

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from typing import Protocol

from roamcast.errors import InputError, RoamcastError, WireError
from roamcast.kit.tables import BoundedDict
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.storage.database import CLOCK_SET
from roamcast.runtime.live.world import NodeWorld
from roamcast.sealing.identity import Identity
from roamcast.sealing.statement import Kind, Statement, decode_statement, make_statement
from roamcast.units import SECOND, NodeId

logger = logging.getLogger("roamcast.members")

# Chosen by us.
STATEMENTS_MAX = 256
OF_ISSUER_MAX = 64  # more of one member than a person would make
AHEAD_MAX = 86_400  # seconds that a statement may be ahead of our clock
_KEPT = "statement "


class StatementsOwner(Protocol):
    """The radio."""

    def on_revoked(self, node: NodeId) -> None: ...

    def on_pardoned(self, node: NodeId) -> None: ...


class Statements:
    def __init__(
        self,
        identity: Identity,
        stored: MutableMapping[str, bytes],
        world: NodeWorld,
        counters: Counters,
        owner: StatementsOwner,
    ) -> None:
        self._identity = identity
        self._world = world
        self._owner = owner
        self._stored = stored
        self._counters = counters
        self._octets: set[bytes] = set()  # of those that stand: most that come are known
        self._standing: BoundedDict[str, Statement] = BoundedDict(STATEMENTS_MAX, self._on_evicted)
        for name in [name for name in stored if name.startswith(_KEPT)]:
            with suppress(WireError):  # of a later version, or damaged
                statement = decode_statement(stored[name])
                self._standing[_key(statement)] = statement
                self._octets.add(stored[name])

    def revoked(self) -> list[NodeId]:
        return sorted(
            int(one.subject)
            for one in self._standing.values()
            if one.kind == "revoke" and one.device is not None
        )

    def shared_invitations(self) -> dict[str, list[NodeId]]:
        """Invitations by which more than one device came, and which devices."""
        users: dict[str, list[NodeId]] = {}
        for one in self._standing.values():
            if one.kind == "joined":
                users.setdefault(one.subject, []).append(one.issuer)
        return {subject: sorted(nodes) for subject, nodes in users.items() if len(nodes) > 1}

    def issue(self, kind: Kind, subject: str) -> bytes | None:
        """Make a statement; the octets to broadcast, None if it stands already."""
        if kind == "revoke" and subject == str(self._identity.node):
            raise InputError(f"node {subject}", "is this one; revoke it on another member")
        before = self._standing.get(_key_of(kind, subject, self._identity.node))
        if before is not None and before.kind == kind:
            return None
        at = max(self._world.wall() // SECOND, 0 if before is None else before.at + 1)
        statement = make_statement(self._identity, kind, subject, at)
        self._take(statement)
        return statement.encode()

    def on_octets(self, data: bytes) -> bool:
        """From the air: True for one that is new to us and is to be passed on."""
        if data in self._octets:
            return False
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

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._octets))

    def __len__(self) -> int:
        return len(self._standing)

    # Private.

    def _objection(self, statement: Statement) -> str | None:
        before = self._standing.get(_key(statement))
        if before is not None and (before.at, before.kind) >= (statement.at, statement.kind):
            return "superseded"
        if statement.issuer in self.revoked():
            return "of_a_revoked_device"
        now = self._world.wall()
        if now >= CLOCK_SET and statement.at > now // SECOND + AHEAD_MAX:
            return "from_the_future"
        if sum(one.issuer == statement.issuer for one in self._standing.values()) >= OF_ISSUER_MAX:
            return "too_many"
        return None

    def _take(self, statement: Statement) -> None:
        key, octets = _key(statement), statement.encode()
        if (before := self._standing.get(key)) is not None:
            self._octets.discard(before.encode())
        self._standing.renew(key, statement)
        self._octets.add(octets)
        with suppress(RoamcastError):  # a full disk: then it lasts until the next boot, or the next peer
            self._stored[_KEPT + key] = octets
        device = statement.device
        if statement.kind == "revoke" and device is not None:
            own = device == self._identity.node
            what = "this node was revoked" if own else f"node {device} is revoked"
            logger.warning("%s, says node %d", what, statement.issuer)
            self._owner.on_revoked(device)
        elif statement.kind == "pardon" and device is not None:
            logger.warning("node %d is accepted again, says node %d", device, statement.issuer)
            self._owner.on_pardoned(device)
        elif (users := self.shared_invitations().get(statement.subject)) is not None:
            logger.error("one invitation was used by several devices: nodes %s", ", ".join(map(str, users)))

    def _refuse(self, reason: str, what: object) -> None:
        self._counters.count("statements_refused_total", reason=reason)
        logger.debug("a statement is refused (%s): %s", reason, what)

    def _on_evicted(self, key: str, statement: Statement) -> None:
        self._counters.count("table_evictions_total", table="statements")
        self._octets.discard(statement.encode())
        with suppress(RoamcastError):
            self._stored.pop(_KEPT + key, None)


def _key(statement: Statement) -> str:
    return _key_of(statement.kind, statement.subject, statement.issuer)


def _key_of(kind: Kind, subject: str, issuer: NodeId) -> str:
    """Of what is said about a device the latest stands; each device says for itself by what it came."""
    return f"joined {subject} {issuer}" if kind == "joined" else f"device {subject}"
