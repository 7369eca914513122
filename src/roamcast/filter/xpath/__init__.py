"""XPath conditions on XML events: `syntax.py` (text to tree), `translation.py` (tree to the filter model)."""
