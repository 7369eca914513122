"""Content-based routing on an acyclic overlay. The docstring of `router.py` lists the parts;
`docs/protocols/tree-routing.md` gives the reasons."""
