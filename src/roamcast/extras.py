"""What `pip install roamcast` leaves out, because a device can do without it (`docs/use/install.md`)."""

from functools import cache
from importlib.util import find_spec

NOT_ON_A_DEVICE = {"lxml", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark", "rich", "scipy"}
"""Packages of the extras `fast`, `xml`, `sim` and `lab` that our modules import (`pyproject.toml`)."""


@cache
def numpy_is_installed() -> bool:
    """Large answers are copied out of large tables faster with numpy (`roamcast[fast]`). It takes 16 MB of
    memory and a tenth of a second to load, so a node loads it with its first large table."""
    return find_spec("numpy") is not None
