"""Content-based routing on an acyclic overlay. The docstring of `router.py` lists the parts;
`docs/protocols/tree-routing.md` gives the reasons."""

from roamcast.strategy.tree.content.options import ContentOptions
from roamcast.strategy.tree.content.router import ContentRouter

__all__ = ["ContentOptions", "ContentRouter"]
