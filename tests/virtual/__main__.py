"""python -m tests.virtual SEED [COUNT]: play schedules, and say what happened."""

import sys
import time

from tests.virtual.schedules import Schedule


def main() -> int:
    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    began, failed, messages, kills, late = time.process_time(), 0, 0, 0, 0
    for seed in range(first, first + count):
        schedule = Schedule(seed)
        try:
            played = schedule.play()
            messages, kills, late = (
                messages + played.messages,
                kills + played.kills,
                late + played.out_of_order,
            )
        except AssertionError as error:
            failed += 1
            print(str(error)[:1_000])  # noqa: T201
        if count == 1:
            print("\n".join(schedule.told))  # noqa: T201
            print("digest", schedule.world.digest)  # noqa: T201
    seconds = time.process_time() - began
    print(  # noqa: T201
        f"{count} schedules, {failed} failed, {messages} messages, {kills} deaths, {late} out of order;"
        f" {seconds:.1f} s of processor time"
    )
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
