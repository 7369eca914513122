"""For whoever writes a protocol: a host driven by hand (`host.py`)."""

from roamcast.testing.host import FakeHost, Sent

__all__ = ["FakeHost", "Sent"]
