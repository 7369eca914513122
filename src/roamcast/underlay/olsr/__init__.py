"""OLSR, the proactive link-state protocol of RFC 3626, as an underlay: neighbours, relays, routes.

Read `wire/olsr.py` (the packets) first, then `links` (link sensing, hysteresis), `neighbourhood` (what HELLOs
change and say; 2-hop neighbours), `mpr` (who relays for us), `topology` (what TC, MID, HNA say), `flooding`
(what goes out and is relayed; the duplicate set), `routing` (shortest routes), and `olsr`, which puts them
together.

Implemented: the core functioning (sections 3 to 10 and 18 to 19), several interfaces and MID (5), HNA (12),
link-layer notification (13), link hysteresis (14), redundant topology information (15). Left out:
MPR_COVERAGE above 1 (16), IPv6 (17).
"""

from roamcast.underlay.olsr.olsr import Olsr
from roamcast.underlay.olsr.options import OlsrOptions

__all__ = ["Olsr", "OlsrOptions"]
