"""A program for `test_ether.py`: three namespaces in a row, the ether, plain UDP and TCP programs in them.

Prints what each heard, and the ether's journal as it was read back, as one JSON object.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from roamcast.runtime.emulate.namespaces import address_of, allow_namespaces, enter, make_namespaces
from roamcast.runtime.emulate.real_time import monotonic
from roamcast.units import SECOND

UNTIL = 2.9  # seconds after zero that broadcasts are sent
STREAM = 50_000
DURATION = 3.5

# Each program says that it is ready and is told when zero is: how long Python takes to start does not matter.
LISTENER = f"""
import socket, sys, time
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("", 9000))
stream = socket.create_server(("", 9001))
heard.settimeout(0.2); stream.settimeout(0.01)  # short: what was sent every 80 ms must not pile up
print("ready", flush=True)
end = float(input()) + {DURATION} + 1.0
numbers, octets = [], 0
while time.monotonic() < end:
    try:
        numbers.append(int(heard.recv(2000)))
    except TimeoutError:
        pass
    try:
        link, _ = stream.accept()
        link.settimeout(2)
        while data := link.recv(65536):
            octets += len(data)
    except TimeoutError:
        pass
heard.setblocking(False)
try:  # what there was no time to read
    while True:
        numbers.append(int(heard.recv(2000)))
except BlockingIOError:
    pass
print(numbers, octets, sep=";")
"""
SPEAKER = f"""
import socket, time
print("ready", flush=True)
zero = float(input())
time.sleep(max(zero - time.monotonic(), 0))
with socket.create_connection(("{address_of(1)}", 9001)) as link:
    link.sendall(bytes({STREAM}))
air = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
air.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
number = 0
while time.monotonic() < zero + {UNTIL}:
    air.sendto(b"%d" % number, ("10.83.255.255", 9000))
    number += 1
    time.sleep(0.08)
try:  # two hops away, and nobody forwards
    socket.create_connection(("{address_of(2)}", 9001), timeout=0.3)
except OSError:
    print(number, "unreachable")
"""


def main(folder: Path, model: str) -> None:
    allow_namespaces()
    spaces = make_namespaces(3)
    from roamcast.runtime.emulate.stage import Stage, read_journal, write_scenario
    from roamcast.scenario import scenario_from

    places = [[0.0, 0.0], [100.0, 0.0], [200.0, 0.0]]
    scenario = scenario_from(
        {
            "scenario": {"name": "three", "duration": DURATION},
            "world": {"nodes": 3, "area": [200.0, 1.0], "range": 120.0, "radio": {"model": model}}
            | {"mobility": {"model": "static", "positions": places}},
            "strategy": {"name": "flooding"},
            "fault": [
                {"at": 1.5, "kind": "cut", "links": [[0, 1]]},
                {"at": 2.1, "kind": "heal", "links": [[0, 1]]},
            ],
        }
    )
    stage = Stage(folder)
    write_scenario(scenario, stage.scenario)
    taps = [space.tap for space in spaces]
    files = [str(stage.scenario), str(stage.ether)]
    ether = subprocess.Popen(
        [sys.executable, "-m", "roamcast.runtime.emulate.ether", *files, *map(str, taps)],
        pass_fds=taps,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert ether.stdin is not None and ether.stdout is not None
    assert ether.stdout.readline() == b"ready\n"
    programs = [
        started(LISTENER, spaces[1].network),
        started(LISTENER, spaces[2].network),
        started(SPEAKER, spaces[0].network),
    ]
    for program in programs:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
    zero = monotonic() + SECOND // 5
    ether.stdin.write(b"%d\n" % zero)
    ether.stdin.flush()
    for program in programs:
        assert program.stdin is not None
        program.stdin.write(f"{zero / SECOND}\n")
        program.stdin.flush()
    said = [program.communicate()[0].strip() for program in programs]
    assert ether.wait(5) == 0
    sys.stdout.write(json.dumps({"said": said, "journal": list(read_journal(stage.ether))}))


def started(program: str, network: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program],
        preexec_fn=lambda: enter(network),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
