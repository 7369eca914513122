"""OLSR, the proactive link-state protocol of RFC 3626, as an underlay: neighbours, relays, routes.

Read `wire/olsr.py` (the packets) first, then `links` (who hears whom), `neighbours` (who is two hops away),
`mpr` (who relays for us), `topology` (what the relays advertise), `routing` (shortest routes), and `olsr`,
which puts them together. `duplicates`, `deadlines`, `associations`, `numbers`, `hysteresis` and `outbox` are
auxiliary tables.

Implemented: the core functioning (sections 3 to 10 and 18 to 19), several interfaces and MID (5), HNA (12),
link-layer notification (13), link hysteresis (14), redundant topology information (15). Left out:
MPR_COVERAGE above 1 (16), IPv6 (17).
"""

from roamcast.underlay.olsr.olsr import Olsr
from roamcast.underlay.olsr.options import OlsrOptions

__all__ = ["Olsr", "OlsrOptions"]
