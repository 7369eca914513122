"""Where the lab keeps its files: a folder by URI, on a disk or in an object store (`storage.py`)."""

from roamcast.lab.storage.storage import Storage

__all__ = ["Storage"]
