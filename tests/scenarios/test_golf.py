"""The golf forum example: its files are what its script writes, and it does what its page says."""

import subprocess
import sys
from pathlib import Path

import pytest

from roamcast.scenario import load_scenario

GOLF = Path(__file__).parents[2] / "examples" / "golf"


def forum(*arguments: str, commands: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(GOLF / "forum.py"), *arguments]
    return subprocess.run(command, input=commands, capture_output=True, text=True, timeout=120)


def test_the_course_and_the_scenario_are_what_the_script_writes(tmp_path: Path) -> None:
    script = tmp_path / "course.py"
    script.write_text((GOLF / "course.py").read_text())
    subprocess.run([sys.executable, str(script)], check=True, timeout=60)
    for name in ("course.csv", "forum.toml"):
        assert (tmp_path / name).read_text() == (GOLF / name).read_text(), f"run course.py: {name} is old"


def test_officials_stand_and_galleries_stay_with_their_player() -> None:
    from roamcast.scenario.world import motion_of
    from roamcast.units import SECOND

    scenario = load_scenario(GOLF / "forum.toml")
    motion = motion_of(scenario)
    assert motion is not None and scenario.nodes == 54

    def place(node: int, t: int) -> tuple[float, float]:
        where = motion.trajectories[node].position_and_velocity(t * SECOND)
        assert where is not None
        return where[0], where[1]

    assert place(7, 10) == place(7, 800)
    for gallery in range(6):
        for t in (0, 300, 600):
            places = [place(18 + 6 * gallery + member, t) for member in range(6)]
            assert max(abs(x - u) + abs(y - v) for x, y in places for u, v in places) < 2 * 80.0
        assert place(18 + 6 * gallery, 0) != place(18 + 6 * gallery, 300)


def test_subscriptions_by_categories() -> None:
    done = forum("--interactive", commands="want player=woods hole=15\nwant\nwant player=o'meara\nquit\n")
    assert done.stdout.splitlines() == [
        "subscription 1: OF_TYPE('PGMFORUM') AND hole = 15 AND player = 'woods'",
        "subscription 2: OF_TYPE('PGMFORUM')",
        "player=o'meara: No closing quotation; allowed: NAME=VALUE with whole quotes",
    ]


def test_a_device_that_is_no_broker_takes_part_through_one() -> None:
    alone, served = (
        forum(option, "--subscribe", "/PGMFORUM", "--until", "200") for option in ("--broker", "--no-broker")
    )
    lines = [{line.partition("  (")[0][10:] for line in done.stdout.splitlines()} for done in (alone, served)]
    assert lines[0] == lines[1] and len(lines[0]) > 2


def test_a_command_that_cannot_be_is_one_line_and_the_forum_goes_on() -> None:
    done = forum(
        "--interactive",
        commands='publish player="woods\nunsubscribe 99\nsubscribe /PGMFORUM[hole = 7]\nunsubscribe 2\n'
        "unsubscribe 1\nunsubscribe 1\nquit\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(";")[0] for line in done.stdout.splitlines()] == [
        'player="woods: No closing quotation',
        "unsubscribe 99: is no subscription",
        "subscription 1: OF_TYPE('PGMFORUM') AND hole = 7",
        "unsubscribe 2: is no subscription",
        "unsubscribed 1",
        "unsubscribe 1: is no subscription",
    ]


def test_a_member_sees_what_it_subscribed_to_and_may_publish() -> None:
    commands = (
        "subscribe /PGMFORUM[hole = 7]\nwait 210\npublish player=woods hole=3 message='What a putt'\n"
        "publish player=nobody hole=3\nsubscribe hole = 3\nnonsense\nquit\n"
    )
    done = forum("--interactive", "--member", "40", commands=commands)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "subscription 1: OF_TYPE('PGMFORUM') AND hole = 7"
    assert any("nicklaus at hole 7" in line and "hops)" in line for line in lines)
    assert any(line.startswith("published <PGMFORUM") for line in lines)
    assert any("'nobody' is not an element of the set" in line for line in lines)
    assert any("a path must begin with / or //" in line for line in lines)
    assert lines[-1].startswith("commands: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--member", "99"), "--member: is 99; allowed: 0 to 53"),
        (("--subscribe", "/PGMFORUM[plyer = 'x']"), "the schema has no `plyer` there"),
    ],
)
def test_bad_arguments_get_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = forum(*arguments)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
