"""A node's counters add up: nothing is lost on it that none of them says. Read as an operator reads them,
from the text of its metrics; of one process, since the counters begin with it.

- What MQTT clients and programs published, and the node's own receipts, is an event, or was shed.
- What was for a client was delivered, was dropped with a reason, waits, or is in flight.
"""

import re
from collections import defaultdict

from roamcast.runtime.live.report.counters import Counters

SAMPLE = re.compile(r"roamcast_(\w+)(?:\{.*\})? (\S+)")


def problems(name: str, counters: Counters) -> list[str]:
    sums: dict[str, float] = defaultdict(float)
    for found in map(SAMPLE.fullmatch, counters.to_text().splitlines()):
        if found is not None:
            sums[found[1]] += float(found[2])
    receipts = ("receipts_sent_total", "receipts_enough_total")
    ledgers = (
        (
            ("mqtt_received", "local_received_total", *receipts),
            ("events_published_total", "publications_shed_total"),
        ),
        (("mqtt_matched",), ("mqtt_delivered", "mqtt_dropped_total", "mqtt_waiting", "mqtt_in_flight")),
    )
    return [
        f"{name}: {', '.join(f'{one} {sums[one]:.0f}' for one in (*whole, 'and', *parts))}"
        for whole, parts in ledgers
        if sum(sums[one] for one in whole) != sum(sums[one] for one in parts)
    ]
