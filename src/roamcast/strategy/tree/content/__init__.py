"""Content-based routing on an acyclic overlay; `router.py` says what is where,
`docs/protocols/tree-routing.md` why."""

from roamcast.strategy.tree.content.options import ContentOptions, Forwarding
from roamcast.strategy.tree.content.router import ContentRouter

__all__ = ["ContentOptions", "ContentRouter", "Forwarding"]
