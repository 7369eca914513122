from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.kit.numbers import StableCounter, count_boot


class FullDisk(dict[str, bytes]):
    is_full = False

    def __setitem__(self, key: str, value: bytes) -> None:
        if self.is_full:
            raise OSError("no room")
        super().__setitem__(key, value)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=10), st.integers(1, 7), st.integers(7, 20))
def test_no_number_comes_twice_whatever_crashes(taken: list[int], block: int, block_max: int) -> None:
    stable: dict[str, bytes] = {}
    numbers = []
    for count in taken:  # a boot each
        counter = StableCounter(stable, "number", block, block_max)
        numbers += [counter.take() for _ in range(count)]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("make", "written"),
    [
        (lambda stable: StableCounter(stable, "number", 4), [4, 8, 12, 16]),
        (lambda stable: StableCounter(stable, "number", 2, 5), [2, 6, 11, 16]),
    ],
)
def test_one_write_reserves_a_block(
    make: Callable[[dict[str, bytes]], StableCounter], written: list[int]
) -> None:
    stable: dict[str, bytes] = {}
    counter, reserved = make(stable), []
    for number in range(written[-2]):
        assert counter.take() == number
        reserved.append(int.from_bytes(stable["number"], "big"))
    assert sorted(set(reserved)) == written


def test_a_number_that_could_not_be_reserved_is_not_used_up() -> None:
    stable = FullDisk()
    counter = StableCounter(stable, "number", 1)
    assert counter.take() == 0
    stable.is_full = True
    for _ in range(2):
        with pytest.raises(OSError, match="no room"):
            counter.take()
    stable.is_full = False
    assert counter.take() == 1


def test_a_disk_that_is_full_for_a_while_stops_nobody() -> None:
    stable = FullDisk()
    counter = StableCounter(stable, "number", 8)
    stable.is_full = True
    assert [counter.take() for _ in range(8)] == list(range(8)), "reserved before the first one was needed"
    with pytest.raises(OSError, match="no room"):
        counter.take()
    stable.is_full = False
    assert [counter.take() for _ in range(5)] == list(range(8, 13))
    assert StableCounter(stable, "number", 8).take() >= 16


def test_a_counter_that_skips_never_goes_back() -> None:
    stable: dict[str, bytes] = {}
    counter = StableCounter(stable, "number", 10)
    counter.skip_to(100)
    assert counter.take() == 100
    counter.skip_to(50)
    assert counter.take() == 101
    assert StableCounter(stable, "number", 10).take() > 101


def test_boots_count_from_one() -> None:
    stable: dict[str, bytes] = {}
    assert [count_boot(stable, "boots") for _ in range(3)] == [1, 2, 3]
    assert stable == {"boots": (3).to_bytes(8, "big")}
