"""Random schedules for every strategy, with bounds drawn small. Promises of one strategy alone (order,
handoffs, one tree per partition) are in its own folder."""

import pytest
from tests.strategy.player import Conditions, Oracle, Player

EPIDEMIC_SMALL = {"recent_max": (1, 2, 50), "request_max": (1, 2, 64), "pending_max": (1, 3, 10_000)}
ODMRP_SMALL = {"pending_max": (1, 2, 10_000), "recent_max": (2, 8, 256)}
CONDITIONS = {
    "partitions": Conditions("epidemic", small=EPIDEMIC_SMALL),
    "crashes": Conditions("epidemic", epochs=6, crashes=True, small=EPIDEMIC_SMALL),
    "loss": Conditions("epidemic", loss=0.2, stillness=20.0, small=EPIDEMIC_SMALL),
    "directed": Conditions("directed", stillness=20.0, crashes=True, loss=0.1, small=EPIDEMIC_SMALL),
    "directed without loss": Conditions("directed", small=EPIDEMIC_SMALL),
    "tree": Conditions("tree", stillness=120.0, crashes=True, loss=0.1),
    "chapar": Conditions("chapar", stillness=60.0, crashes=True, small={"pending_max": (2, 5, 1_000)}),
    "opportunistic": Conditions("opportunistic", stillness=30.0),
    "odmrp": Conditions("odmrp", stillness=40.0, crashes=True, small=ODMRP_SMALL),
    "flooding": Conditions("flooding", stillness=1.0, small={"pending_max": (1, 2, 10_000)}),
    "flooding with crashes": Conditions("flooding", epochs=8, stillness=1.0, crashes=True, loss=0.1),
}


class NoRepair(Oracle):
    """Flooding promises nothing to those who were not connected."""

    repairs = False


ORACLES = {"flooding": NoRepair()}


@pytest.mark.long
@pytest.mark.parametrize("name", CONDITIONS)
def test_random_schedules_lose_and_double_nothing(name: str) -> None:
    conditions = CONDITIONS[name]
    for seed in range(25):
        Player(seed, conditions, ORACLES.get(conditions.strategy, Oracle())).play()


def test_the_player_really_publishes_delivers_and_repairs() -> None:
    """Else the test above proves nothing."""
    arrivals, late = 0, 0
    for seed in range(10):
        player = Player(seed, CONDITIONS["partitions"], Oracle())
        player.play()
        arrivals += len(player.network.delivered)
        late += sum(frame.message == "handed" for frame in player.network.frames())
    assert arrivals > 100 and late > 50
