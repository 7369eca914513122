"""What tests of the lab share."""

from tests.lab.storage.object_store import object_store, running_object_store

__all__ = ["object_store", "running_object_store"]
