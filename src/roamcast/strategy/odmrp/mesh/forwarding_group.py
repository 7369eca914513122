"""The forwarding group table: for which publishers and members this node relays data (section 3.5.2).

A branch is a member whose Join Table came through this node. The FG flag for a publisher is set while
one of its branches has not expired; no message ends it.
"""

from collections.abc import Mapping

from roamcast.units import Micros, NodeId


class Branch:
    """A member below this node, and the version of its subscriptions."""

    __slots__ = ("expires_at", "version")

    def __init__(self, version: int, expires_at: Micros) -> None:
        self.version = version
        self.expires_at = expires_at


NO_BRANCHES: Mapping[NodeId, Branch] = {}


class ForwardingGroup:
    def __init__(self, publishers_max: int, members_max: int) -> None:
        self._publishers_max = publishers_max
        self._members_max = members_max
        self._branches: dict[NodeId, dict[NodeId, Branch]] = {}

    def refresh(self, publisher: NodeId, member: NodeId, version: int, expires_at: Micros) -> bool:
        """A Join Table named this node as the next hop of `member`. False if the table is full."""
        branches = self._branches.get(publisher)
        if branches is None:
            if len(self._branches) >= self._publishers_max:
                return False
            branches = self._branches[publisher] = {}
        branch = branches.get(member)
        if branch is not None:
            branch.version = version
            branch.expires_at = expires_at
            return True
        if len(branches) >= self._members_max:
            return False
        branches[member] = Branch(version, expires_at)
        return True

    def has(self, publisher: NodeId, member: NodeId, version: int) -> bool:
        """Whether the member is a branch already, with the same subscriptions."""
        branch = self._branches.get(publisher, {}).get(member)
        return branch is not None and branch.version == version

    def branches(self, publisher: NodeId) -> Mapping[NodeId, Branch]:
        """The members, in the order of arrival; some may have expired."""
        return self._branches.get(publisher, NO_BRANCHES)

    def stands(self, now: Micros) -> bool:
        """Whether this node forwards for any publisher."""
        return any(
            now < branch.expires_at for branches in self._branches.values() for branch in branches.values()
        )

    def expire(self, now: Micros) -> None:
        for publisher, branches in list(self._branches.items()):
            for member in [m for m, branch in branches.items() if branch.expires_at <= now]:
                del branches[member]
            if not branches:
                del self._branches[publisher]

    def next_expiry(self) -> Micros | None:
        return min(
            (branch.expires_at for branches in self._branches.values() for branch in branches.values()),
            default=None,
        )

    def __len__(self) -> int:
        return sum(len(branches) for branches in self._branches.values())
