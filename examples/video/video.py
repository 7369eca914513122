"""A video server and players whose brokers thin the stream out for them.

    python examples/video/video.py play --socket b.sock --keep 0.5 --factor 4     # on each player's device
    python examples/video/video.py serve --socket a.sock                          # on the server's
    python examples/video/video.py emulate --players 8                            # all, in namespaces (Linux)

The video channel of the opportunistic-channels work (section 4.2). Frames have the sizes of a recorded stream
(`frames.csv`; 25 frames a second, 10 s, again and again). A player subscribes with the modulator
`video_scale`, which runs in a broker, and reports what it could show: a frame that came with all before it
up to the key frame. `emulate` shows the work's experiment: with `--brokers 1` all players share one broker.
"""

import argparse
import asyncio
import csv
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import video_functions

from roamcast.client import connect
from roamcast.errors import InputError, RoamcastError
from roamcast.event import Event, Publication
from roamcast.modulator import ModulatorSpec

FOLDER = Path(__file__).parent
PER_SECOND = 25
SETTLED_S = 8.0  # the overlay has formed
SERVER = 0


class VideoFrame(NamedTuple):
    octets: int
    is_key: bool


def recorded(path: Path = FOLDER / "frames.csv") -> list[VideoFrame]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        frames = [VideoFrame(int(row["octets"]), row["key"] == "1") for row in rows]
    except (KeyError, TypeError, ValueError):
        raise InputError(str(path), "is no list of octets,key") from None
    if not frames or not frames[0].is_key:
        raise InputError(str(path), "does not begin with a key frame")
    return frames


class Player:
    """Counts what can be shown."""

    def __init__(self) -> None:
        self.came = self.shown = self.octets = 0
        self.longest_freeze = 0.0
        self._next = -1  # the number that would go on from the last frame shown; -1: a key frame is needed
        self._shown_at: float | None = None

    def on_frame(self, event: Event, now: float) -> None:
        number, is_key = event.attributes.get("number"), event.attributes.get("key") is True
        if not isinstance(number, int):
            return
        self.came += 1
        self.octets += len(event.payload)
        if not is_key and number != self._next:
            self._next = -1
            return
        self._next = number + 1
        self.shown += 1
        if self._shown_at is not None:
            self.longest_freeze = max(self.longest_freeze, now - self._shown_at)
        self._shown_at = now

    def report(self, name: str, seconds: float) -> str:
        return (
            f"{name}: {self.shown} frames shown ({self.shown / seconds:.1f} a second), "
            f"{self.came - self.shown} of {self.came} useless, {self.octets} octets, "
            f"longest freeze {self.longest_freeze:.1f} s"
        )


async def serve(socket: Path, seconds: float) -> None:
    frames = recorded()
    async with connect(socket, name="video server") as client:
        begin = time.monotonic()
        for number in range(int(seconds * PER_SECOND)):
            await asyncio.sleep(max(0.0, begin + number / PER_SECOND - time.monotonic()))
            frame = frames[number % len(frames)]
            picture = bytes((number + at) % 251 for at in range(97)) * (frame.octets // 97 + 1)
            attributes = {"number": number, "key": frame.is_key}
            await client.send(Publication(attributes, picture[: frame.octets], topic="video/frames"))


async def play(socket: Path, keep: float, factor: int, patience: float, player: Player) -> None:
    wanted = ModulatorSpec.of(video_functions.NAME, {"keep": keep, "factor": factor})
    async with (
        connect(socket, name="player") as client,
        client.subscribe(topic="video/frames", modulator=wanted) as messages,
    ):
        wait = None
        while True:
            try:
                message = await messages.next(wait)
            except TimeoutError:
                return
            wait = patience
            player.on_frame(message.event, time.monotonic())


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


# The commands.


def _serve(options: argparse.Namespace) -> int:
    asyncio.run(serve(options.socket, options.seconds))
    say(f"{int(options.seconds * PER_SECOND)} frames sent")
    return 0


def _play(options: argparse.Namespace) -> int:
    player = Player()
    asyncio.run(play(options.socket, options.keep, options.factor, options.patience, player))
    say(player.report("player", options.seconds))
    return 0 if player.shown else 1


def _emulate(options: argparse.Namespace) -> int:
    from roamcast.runtime.emulate.programs import play_on
    from roamcast.scenario import read_tables, scenario_from

    tables = read_tables(FOLDER / "video.toml")
    tables["scenario"]["duration"] = SETTLED_S + options.seconds + 2 * options.patience + 10.0
    tables["world"]["nodes"] = 1 + options.brokers + options.players
    tables["roles"]["brokers"] = list(range(1, 1 + options.brokers))
    players = {node: Player() for node in range(1 + options.brokers, 1 + options.brokers + options.players)}

    async def everybody(sockets: list[Path]) -> None:
        playing = [
            asyncio.ensure_future(play(sockets[node], options.keep, options.factor, options.patience, player))
            for node, player in players.items()
        ]
        await asyncio.sleep(SETTLED_S)
        await serve(sockets[SERVER], options.seconds)
        await asyncio.wait(playing, timeout=2 * options.patience)
        for one in playing:
            one.cancel()

    asyncio.run(play_on(scenario_from(tables, FOLDER), everybody))
    for node, player in players.items():
        say(player.report(f"player on node {node}", options.seconds))
    return 0 if all(player.shown for player in players.values()) else 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        made = commands.add_parser(name)
        made.set_defaults(run=run)
        made.add_argument("--seconds", type=float, default=10.0, help="of video")
        return made

    serving, playing, emulating = (
        command("serve", _serve),
        command("play", _play),
        command("emulate", _emulate),
    )
    for each in (serving, playing):
        each.add_argument("--socket", type=Path, default=Path("roamcast.sock"))
    for each in (playing, emulating):
        each.add_argument("--keep", type=float, default=1.0, help="share of the frames after each key frame")
        each.add_argument("--factor", type=int, default=4, help="octets of a frame are divided by it")
        each.add_argument("--patience", type=float, default=5.0, help="seconds of silence that end it")
    emulating.add_argument("--players", type=int, default=4)
    emulating.add_argument("--brokers", type=int, default=2)
    options = parser.parse_args(arguments)
    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except RoamcastError as error:
        sys.stderr.write(f"video: {error}\n")
        return 2 if isinstance(error, InputError) else 1


if __name__ == "__main__":
    sys.exit(main())
