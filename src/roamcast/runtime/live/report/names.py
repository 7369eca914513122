"""What the nodes of a network are called: each says it in a signed statement (`air/statements.py`), so that
people read and type names, not numbers. A name is no address: only people use it."""

from collections.abc import Collection

from roamcast.kit.tables import BoundedDict, unreported
from roamcast.units import NodeId

NAMES_MAX = 1_024  # chosen by us


class Names(BoundedDict[NodeId, str]):
    def __init__(self) -> None:
        super().__init__(NAMES_MAX, unreported)

    def called(self, node: NodeId) -> str:
        """What a node is called in a line that somebody reads."""
        name = self.get(node)
        return f"node {node}" if name is None else f"{name} ({node})"

    def shared(self, revoked: Collection[NodeId]) -> dict[str, list[NodeId]]:
        """Names that more than one node has, of those that are not revoked."""
        holders: dict[str, list[NodeId]] = {}
        for node, name in self.items():
            holders.setdefault(name, []).extend([node] * (node not in revoked))
        return {name: sorted(nodes) for name, nodes in holders.items() if len(nodes) > 1}
