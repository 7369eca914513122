"""OLSR, the proactive link-state protocol of RFC 3626, as an underlay: neighbours, relays, routes.

Read `wire/olsr.py` (the packets) first, then `links` (who hears whom), `neighbours` (who is two hops away),
`mpr` (who relays for us), `topology` (what the relays advertise), `routing` (shortest routes), and `olsr`,
which puts them together. `duplicates`, `deadlines`, `associations` and `outbox` are auxiliary tables; `pace`
limits the messages sent before their interval is over.

Implemented: the core functioning (sections 3 to 10 and 18 to 19), MID and HNA as a receiver (5.4, 12.5),
link-layer notification (13), redundant topology information (15). Left out: several own interfaces, sending
MID and HNA, link hysteresis (14), MPR_COVERAGE above 1 (16), IPv6 (17).
"""

from roamcast.underlay.olsr.olsr import Olsr
from roamcast.underlay.olsr.options import OlsrOptions

__all__ = ["Olsr", "OlsrOptions"]
