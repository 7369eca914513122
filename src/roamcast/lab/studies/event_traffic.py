"""What Chapar sends, by kind of message, under the load of the paper's Figure 4 (Chapar, section 5.2).

40 nodes walk at 1 m/s with a range of 250 m; six subscriptions and two memorized events a minute come from
random nodes. The paper counts an hour. Its memorized messages have 94 octets at least and 362 on average,
after a log-normal law whose width it does not give; here those are the sizes of the payloads. Its
subscriptions have 65 to 70 octets, because they carry more than a filter identifier; ours have 24 at most. So
the octets of subscriptions are given twice: as sent, and as the same frames would be with the paper's size.

No node subscribes twice to one channel, because that would be no message. What nodes and brokers say on
OLSR's HELLOs is no frame of its own: the frame is OLSR's, its octets are the event system's.
"""

import math
from itertools import cycle
from typing import Annotated, Any, Literal

import msgspec

from roamcast.lab.run.metrics import Metric, StudyMetrics
from roamcast.lab.studies.study import Study
from roamcast.streams import stream

SUBSCRIPTION_EVERY, EVENT_EVERY = 10.0, 30.0  # seconds: 6 and 2 a minute (Figure 4)
SUBSCRIPTION_BYTES = 67.5  # the mean of 65 to 70 (Figure 4)
SIZE_MIN, SIZE_MEAN, SIZE_MAX = 94, 362, 1_900  # octets (Figure 4); at most so that events of 2 kB fit
SIZE_SIGMA = 1.0  # of the logarithm; chosen by us
CHANNELS = 20  # what subscriptions are about; chosen by us: an hour takes 354 of the 800 of 40 nodes
RIDER_BYTES = 40.0  # of what rides on one HELLO, its header included: rather more than measured
LIFETIME = 300.0  # seconds; chosen by us: the paper gives none
KINDS = {
    "olsr": ("hello", "tc", "olsr", "rider"),
    "rider": ("rider",),
    "subscription": ("subscribe", "unsubscribe"),
    "memorized": ("memorized",),
    "consistency": ("consistency",),
    "attach": ("attach",),
}
"""Messages by what they are for; all but OLSR's are the event system's. Riders are HELLOs too."""


class EventTraffic(Study, frozen=True):
    side: Annotated[float, msgspec.Meta(gt=0, le=100_000)] = 600.0  # metres, of the square
    duration: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 3600.0  # seconds
    nodes: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 40
    brokers: Literal["mpr", "all"] = "mpr"
    absent_subscribers: Literal["digest", "pass", "pass_and_purge"] = "pass_and_purge"
    loss: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0  # of the radio, beside collisions

    def metrics(self, seed: int) -> StudyMetrics:
        """Of all frames, also those before a warm-up: the paper's hour has none."""
        made = {}
        for kind, messages in KINDS.items():
            sent = f"message IN ({', '.join(map(repr, messages))})"
            for name, unit, counted in (("messages", "frames", "1"), ("bytes", "octets", "size")):
                made[f"{kind}_{name}"] = Metric(
                    unit,
                    f"{name} sent, {kind}",
                    "transmissions",
                    f"SUM(CASE WHEN {sent} THEN {counted} ELSE 0 END)",
                    "0",
                )
        riding = f"rider_messages * {RIDER_BYTES!r}"
        made["rider_bytes"] = Metric("octets", "octets of the event system on HELLOs", "", riding)
        events = [kind for kind in KINDS if kind not in ("olsr", "rider")]
        total = " + ".join(f"{kind}_messages" for kind in events)
        made["event_system_messages"] = Metric("frames", "messages of the event system", "", total)
        total = " + ".join([riding, *(f"{kind}_bytes" for kind in events)])
        made["event_system_bytes"] = Metric("octets", "bytes of the event system", "", total)
        as_published = f"subscription_messages * {SUBSCRIPTION_BYTES!r}"
        made["subscription_bytes_published"] = Metric(
            "octets", "octets of the subscriptions, had they the paper's size", "", as_published
        )
        made["event_system_bytes_published"] = Metric(
            "octets",
            "octets of the event system, subscriptions with the paper's size",
            "",
            total.replace("subscription_bytes", as_published),
        )
        return StudyMetrics(made)

    def tables(self, seed: int) -> dict[str, Any]:
        random = stream(seed, "figure 4")

        def node() -> int:
            return int(random.random() * self.nodes)

        def channel() -> str:
            return f"c{int(random.random() * CHANNELS)}"

        quiet = self.duration - 60.0  # what comes last has time to arrive
        wishes = [(who, what) for who in range(self.nodes) for what in range(CHANNELS)]
        random.shuffle(wishes)
        subscriptions = [
            {"node": who, "from": SUBSCRIPTION_EVERY * number, "filter": f"channel = 'c{what}'"}
            for number, (who, what) in zip(range(math.ceil(quiet / SUBSCRIPTION_EVERY)), cycle(wishes))
        ]
        publications = [
            {
                "t": EVENT_EVERY * (number + 0.5),
                "node": node(),
                "attributes": {"channel": channel()},
                "size": _size(random.gauss(0.0, 1.0)),
            }
            for number in range(math.ceil(quiet / EVENT_EVERY - 0.5))
        ]
        return {
            "scenario": {"name": "event-traffic", "duration": self.duration, "seed": seed},
            "world": {
                "nodes": self.nodes,
                "area": [self.side, self.side],
                "range": 250.0,
                "mobility": {"model": "random_waypoint", "speed": [1.0, 1.0], "pause": [0.0, 0.0]},
                "radio": {"model": "csma", "loss": self.loss},
            },
            "workload": {
                "class": "memorized",
                "lifetime": LIFETIME,
                "subscriptions": subscriptions,
                "publications": publications,
            },
            "strategy": {
                "name": "chapar",
                "options": {
                    "preset": "paper",
                    "brokers": self.brokers,
                    "absent_subscribers": self.absent_subscribers,
                },
            },
        }


def _size(deviation: float) -> int:
    mean = SIZE_MEAN - SIZE_MIN
    size = SIZE_MIN + mean * math.exp(SIZE_SIGMA * deviation - SIZE_SIGMA**2 / 2)
    return min(round(size), SIZE_MAX)
