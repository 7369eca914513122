"""What Chapar sends, by kind of message, under the load of the paper's Figure 4 (Chapar, section 5.2).

40 nodes walk at 1 m/s with a range of 250 m; six subscriptions and two memorized events a minute come from
random nodes. The paper counts an hour. Its memorized messages have 94 octets at least and 362 on average,
after a log-normal law whose width it does not give; here those are the sizes of the payloads. Its
subscriptions have 65 to 70 octets, because they carry more than a filter identifier; ours have 24 at most. So
the octets of subscriptions are given twice: as sent, and as the same frames would be with the paper's size.
"""

import math
from collections import Counter
from typing import Annotated, Literal

import msgspec

from roamcast.lab.run.runs import simulate
from roamcast.lab.studies.study import STUDIES, Study
from roamcast.scenario import scenario_from
from roamcast.streams import stream

SUBSCRIPTION_EVERY, EVENT_EVERY = 10.0, 30.0  # seconds: 6 and 2 a minute (Figure 4)
SUBSCRIPTION_BYTES = 67.5  # the mean of 65 to 70 (Figure 4)
SIZE_MIN, SIZE_MEAN, SIZE_MAX = 94, 362, 1_900  # octets (Figure 4); at most so that events of 2 kB fit
SIZE_SIGMA = 1.0  # of the logarithm; chosen by us
CHANNELS = 10  # what subscriptions are about; chosen by us
LIFETIME = 300.0  # seconds; chosen by us: the paper gives none
KINDS = {
    "hello": "olsr",
    "tc": "olsr",
    "olsr": "olsr",
    "subscribe": "subscription",
    "unsubscribe": "subscription",
    "memorized": "memorized",
    "consistency": "consistency",
    "attach": "attach",
}


class EventTrafficParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    side: Annotated[float, msgspec.Meta(gt=0, le=100_000)] = 600.0  # metres, of the square
    duration: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 3600.0  # seconds
    nodes: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 40
    brokers: Literal["mpr", "all"] = "mpr"
    absent_subscribers: Literal["digest", "pass", "pass_and_purge"] = "digest"
    loss: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0  # of the radio, beside collisions


def run(parameters: EventTrafficParameters, seed: int) -> dict[str, float | None]:
    result = simulate(scenario_from(_tables(parameters, seed)))
    sent = result.tables["transmissions"].select(["message", "size"]).to_pydict()
    messages: Counter[str] = Counter()
    octets: Counter[str] = Counter()
    for message, size in zip(sent["message"], sent["size"], strict=True):
        messages[KINDS[message]] += 1
        octets[KINDS[message]] += size
    kinds = sorted(set(KINDS.values()))
    events = [kind for kind in kinds if kind != "olsr"]
    as_published = messages["subscription"] * SUBSCRIPTION_BYTES
    total = sum(octets[kind] for kind in events)
    return {
        **{f"{kind}_messages": float(messages[kind]) for kind in kinds},
        **{f"{kind}_bytes": float(octets[kind]) for kind in kinds},
        "subscription_bytes_published": as_published,
        "event_system_messages": float(sum(messages[kind] for kind in events)),
        "event_system_bytes": float(total),
        "event_system_bytes_published": total - octets["subscription"] + as_published,
        **{name: result.metrics[name] for name in METRICS},
    }


METRICS = ("delivery_ratio", "duplicates", "brokers_mean", "mprs_mean")


def _tables(parameters: EventTrafficParameters, seed: int) -> dict[str, object]:
    random = stream(seed, "figure 4")

    def node() -> int:
        return int(random.random() * parameters.nodes)

    def channel() -> str:
        return f"c{int(random.random() * CHANNELS)}"

    quiet = parameters.duration - 60.0  # what comes last has time to arrive
    subscriptions = [
        {"node": node(), "from": SUBSCRIPTION_EVERY * number, "filter": f"channel = '{channel()}'"}
        for number in range(math.ceil(quiet / SUBSCRIPTION_EVERY))
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
        "scenario": {"name": "event-traffic", "duration": parameters.duration, "seed": seed},
        "world": {
            "nodes": parameters.nodes,
            "area": [parameters.side, parameters.side],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [1.0, 1.0], "pause": [0.0, 0.0]},
            "radio": {"model": "csma", "loss": parameters.loss},
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
                "brokers": parameters.brokers,
                "absent_subscribers": parameters.absent_subscribers,
            },
        },
    }


def _size(deviation: float) -> int:
    mean = SIZE_MEAN - SIZE_MIN
    size = SIZE_MIN + mean * math.exp(SIZE_SIGMA * deviation - SIZE_SIGMA**2 / 2)
    return min(round(size), SIZE_MAX)


STUDIES.add(
    Study(
        "event_traffic",
        EventTrafficParameters,
        run,
        (
            *(f"{kind}_{unit}" for kind in sorted(set(KINDS.values())) for unit in ("messages", "bytes")),
            "subscription_bytes_published",
            "event_system_messages",
            "event_system_bytes",
            "event_system_bytes_published",
            *METRICS,
        ),
    )
)
