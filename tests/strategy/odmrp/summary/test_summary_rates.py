"""False positives: those of each Bloom filter against theory, and those of whole summaries as measured.

Everything is drawn from fixed seeds, so these are fixed numbers; the tolerances are three standard
deviations of the measurement where theory is meant to be met.
"""

import math
from random import Random

import pytest

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.strategy.odmrp.summary.bloom import TOKEN_BITS, false_positive_rate, mask
from roamcast.strategy.odmrp.summary.cells import exact_token
from roamcast.strategy.odmrp.summary.lookup import DigestTable
from roamcast.strategy.odmrp.summary.summary import EventDigest, Summary, SummaryOptions

pytestmark = pytest.mark.long

PLAYERS = [f"player {number}" for number in range(100)]


@pytest.mark.parametrize(
    ("bits", "hashes", "items"),
    [(128, 4, 10), (128, 4, 30), (1024, 3, 60), (1024, 3, 300), (64, 1, 20), (1024, 8, 90)],
)
def test_a_filter_errs_as_often_as_theory_says(bits: int, hashes: int, items: int) -> None:
    """(1 - (1 - 1/m)^kn)^k. Tokens are those of texts, as subscriptions name them."""
    wrong = tried = 0
    for trial in range(100):
        held = 0
        for item in range(items):
            held |= mask(exact_token(trial + 1, f"inside {item}"), bits, hashes)
        for stranger in range(200):
            bits_of_it = mask(exact_token(trial + 1, f"outside {stranger}"), bits, hashes)
            wrong += held & bits_of_it == bits_of_it
            tried += 1
    theory = false_positive_rate(bits, hashes, items)
    # The formula is for the mean filter; beside chance in the strangers, filters differ in how full they are.
    deviation = math.sqrt(theory * (1 - theory) / tried) + hashes * theory / math.sqrt(100 * items)
    assert wrong / tried == pytest.approx(theory, abs=3 * deviation + 0.02 * theory)
    assert theory > 1e-4  # else nothing was measured


def test_positions_of_tokens_are_spread_evenly() -> None:
    random = Random(5)
    counts = [0] * 128
    tokens = 20_000
    for _ in range(tokens):
        bits = mask(random.randrange(1 << TOKEN_BITS), 128, 1)
        counts[bits.bit_length() - 1] += 1
    chi_squared = sum((count - tokens / 128) ** 2 / (tokens / 128) for count in counts)
    assert 127 - 4 * math.sqrt(2 * 127) < chi_squared < 127 + 4 * math.sqrt(2 * 127)


@pytest.mark.parametrize("values", [1, 4, 16, 40])
def test_an_enumeration_errs_as_its_filter_does(values: int) -> None:
    """EC of one element: the whole way from SQL text to digest."""
    options = SummaryOptions()
    random = Random(values)
    wrong = tried = 0
    for trial in range(40):
        names = [f"{trial} {number}" for number in range(values)]
        text = ", ".join(f"'{name}'" for name in names)
        summary = Summary.of([Filter.sql(f"a IN ({text})")], options)
        for _ in range(100):
            wrong += summary.matches(EventDigest.of(Event(1, 1, {"a": f"x{random.random()}"}), options))
            tried += 1
    theory = false_positive_rate(options.enumeration_bits, options.enumeration_hashes, values)
    deviation = math.sqrt(theory * (1 - theory) / tried) + 4 * theory / math.sqrt(40 * values)
    assert wrong / tried == pytest.approx(theory, abs=3 * deviation + 1 / tried)


@pytest.mark.parametrize(
    ("subscriptions", "at_most"),
    # docs/protocols/odmrp-summaries.md: 0.0000, 0.0001 and 0.016 of far more pairs. Beyond 32 entries some
    # merge.
    [(5, 0.001), (16, 0.002), (50, 0.05)],
)
def test_the_golf_forum_s_rate(subscriptions: int, at_most: float) -> None:
    """Of the events that nobody at a broker wants, the share that its summary claims nevertheless."""
    random = Random(subscriptions)
    events = [golf_event(random) for _ in range(250)]
    digests = DigestTable(map(EventDigest.of, events))
    unwanted = claimed = 0
    for _ in range(16):
        filters = [golf_subscription(random) for _ in range(subscriptions)]
        matching = digests.matching(Summary.of(filters))
        for event, matches in zip(events, matching, strict=True):
            if not any(each.matches(event) for each in filters):
                unwanted += 1
                claimed += bool(matches)
    assert unwanted > 500 and claimed / unwanted <= at_most


def golf_subscription(random: Random) -> Filter:
    """A player or a few, some holes, good scores or the leaders, as in the paper's figure 7."""
    terms = []
    if random.random() < 0.8:
        chosen = random.sample(PLAYERS, random.choice([1, 1, 2, 3]))
        terms.append("player IN ({})".format(", ".join(f"'{player}'" for player in chosen)))
    if random.random() < 0.6:
        first = random.randint(1, 18)
        terms.append(f"hole BETWEEN {first} AND {random.randint(first, 18)}")
    if random.random() < 0.2:
        terms.append(f"holescore <= {random.randint(1, 4)}")
    if random.random() < 0.2 or not terms:
        terms.append(f"currentrank <= {random.randint(1, 20)}")
    return Filter.of_type("PGMFORUM") & Filter.sql(" AND ".join(terms))


def golf_event(random: Random) -> Event:
    attributes: dict[str, bool | int | float | str | None] = {
        "player": random.choice(PLAYERS),
        "hole": random.randint(1, 18),
        "holescore": random.randint(2, 7),
        "totalscore": random.randint(2, 90),
        "currentrank": random.randint(1, 100),
    }
    return Event(1, 1, attributes, type="PGMFORUM")
