"""Tables whose entries end by themselves, and the one timer that removes them."""

from tests.kit.timed import timed_host

from roamcast.kit.soft_state import SoftState
from roamcast.kit.tables import ExpiringDict, unreported


class Keeper:
    def __init__(self) -> None:
        self.host = timed_host()
        self.expired: list[int] = []
        self.first, self.second = (
            ExpiringDict[str, int](10, unreported, lambda until: until) for _ in range(2)
        )
        self.state = SoftState(self.host, self.expired.append)
        self.state.add(self.first, self.second)


def test_each_entry_ends_at_its_time_and_then_no_timer_is_left() -> None:
    keeper = Keeper()
    keeper.first["a"], keeper.second["b"], keeper.second["c"] = 30, 10, 20
    keeper.state.watch()
    keeper.host.advance(10)
    assert (list(keeper.first), list(keeper.second)) == (["a"], ["c"])
    keeper.host.advance(20)
    assert not keeper.first and not keeper.second and keeper.expired == [10, 20, 30]
    assert keeper.host.timers() == {} and not keeper.state.is_watched


def test_a_deadline_that_was_extended_is_kept() -> None:
    keeper = Keeper()
    keeper.first["a"] = 10
    keeper.state.watch()
    keeper.first["a"] = 25
    keeper.host.advance(20)
    assert "a" in keeper.first
    keeper.host.advance(5)
    assert "a" not in keeper.first


def test_nothing_is_watched_while_there_is_nothing() -> None:
    keeper = Keeper()
    keeper.state.watch()
    assert keeper.host.timers() == {}
