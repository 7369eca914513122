"""Ten thousand events each way over a bridge whose uplink is cut, moved and restored ten times."""

import asyncio
from pathlib import Path

import pytest
from tests.gateway.bridge.rig import MOSQUITTO, BridgeRig, flow, lost_and_doubled

pytestmark = pytest.mark.realtime

EVENTS = 10_000


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    async def play() -> None:
        rig = BridgeRig(tmp_path)
        try:
            await rig.start()
            up, down = await flow(rig, EVENTS, cuts=10, every=0.004)
            assert lost_and_doubled(up, b"up", EVENTS) == (0, 0)
            assert lost_and_doubled(down, b"down", EVENTS) == (0, 0)
        finally:
            await rig.stop()

    asyncio.run(play())
