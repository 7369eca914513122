"""The parts of content-based routing on an acyclic overlay. The docstring of `strategy.py` lists them;
`docs/protocols/tree-routing.md` gives the reasons."""
