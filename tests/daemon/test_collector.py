"""What lives long is looked at seldom, and still a cycle in it goes."""

import asyncio
import gc
import weakref

import pytest

from roamcast.daemon import collector


class Link:
    """In a cycle with itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_lives_long_is_put_aside_and_cycles_still_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "FULL_EVERY", 0.3)
    usual = gc.get_threshold()

    async def scenario() -> None:
        collector.calm(asyncio.get_running_loop())
        before = gc.get_freeze_count()
        link = Link()
        ended = weakref.ref(link)
        kept = [[number] for number in range(3 * collector.YOUNG * collector.SECOND_LOOK)]
        assert gc.get_freeze_count() - before > len(kept) // 2
        assert len(gc.get_objects()) < 2 * collector.YOUNG * collector.SECOND_LOOK  # what a pass may look at
        del link
        gc.collect(1)
        assert ended() is not None  # put aside, so that no short look finds it
        for _ in range(100):
            await asyncio.sleep(0.05)
            if ended() is None:
                return
        raise AssertionError("no look at everything")

    try:
        asyncio.run(scenario())
    finally:
        collector.as_usual()
    assert gc.get_threshold() == usual and gc.get_freeze_count() == 0
    gc.freeze()  # as after the collection of tests
