"""What `pip install roamcast` leaves out, because a device can do without it (`docs/install.md`)."""

from functools import cache
from importlib.util import find_spec

EXTRA_OF = {
    "lxml": "xml",
    "matplotlib": "lab",
    "numpy": "lab",
    "pandas": "lab",
    "pyarrow": "lab",
    "pyspark": "lab",
    "rich": "lab",
    "scipy": "lab",
}
"""Each package that may be missing, and the extra that a command without it asks for."""


@cache
def numpy_is_installed() -> bool:
    """Large tables are searched faster with numpy (`roamcast[fast]`). It takes 16 MB of memory and a tenth of
    a second to load, so a node loads it with its first large table."""
    return find_spec("numpy") is not None
