"""`watch` killed in the middle of a pass, and started again: as if nothing had happened."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.live.segments import write_trace
from tests.lab.live.test_streaming import SETTINGS, rows_of
from tests.lab.live.test_windows import by_hand, random_trace

from roamcast.lab.live.streaming import watch

WATCH = """
import sys
from roamcast.lab.live.streaming import watch
def tell(table):
    print("batch", flush=True)
watch(sys.argv[1], sys.argv[2], window_s=5.0, late_s=1000.0, once=True, on_table=tell)
"""


def test_a_kill_of_everything_in_the_middle_counts_nothing_twice(tmp_path: Path) -> None:
    """SIGKILL right when a pass has been written, then again from the start."""
    folder, out = tmp_path / "traces", tmp_path / "out"
    folder.mkdir()
    trace = random_trace(3)
    write_trace(folder, trace)
    process = subprocess.Popen(
        [sys.executable, "-c", WATCH, str(folder), str(out)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    watch(str(folder), str(out), **SETTINGS)
    assert rows_of(out, "r") == by_hand(trace)
