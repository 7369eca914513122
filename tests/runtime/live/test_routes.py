"""Routes in a kernel's table, in a namespace of their own: needs the permission to make one."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, socket, subprocess, sys
from pathlib import Path
from roamcast.errors import InputError
from roamcast.runtime.emulate.namespaces import allow_namespaces, enter, make_namespaces
from roamcast.runtime.live.routes import RouteWriter
from roamcast.underlay.addresses import parse_dotted
from roamcast.underlay.base import IpRoute
try:
    allow_namespaces()
    space = make_namespaces(1)[0]
except InputError as error:
    print(json.dumps({"skipped": str(error)})); sys.exit()
enter(space.network)
own, near = parse_dotted("10.83.0.1"), parse_dotted("10.83.0.2")
numbers = {own: socket.if_nametoindex("air0")}
def table():
    rows = [line.split() for line in Path("/proc/self/net/route").read_text().splitlines()[1:]]
    return sorted((row[1], row[2], int(row[6]), row[7]) for row in rows if row[6] != "0")
said = {}
Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
try:
    RouteWriter().open()
except InputError as error:
    said["not forwarding"] = str(error)
Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
writer = RouteWriter()
writer.open()
first = [IpRoute(near, 32, None, own, 1), IpRoute(near + 1, 32, near, own, 2),
    IpRoute(parse_dotted("172.20.0.0"), 16, near, own, 2)]
said["problems"] = writer.write(first, numbers)
said["first"] = table()
writer.write([IpRoute(near, 32, None, own, 1), IpRoute(near + 1, 32, None, own, 1)], numbers)
said["second"] = table()
said["refused"] = writer.write([IpRoute(near, 32, None, own, 1), IpRoute(1, 8, near, own, 1)], numbers)
said["third"] = table()
crashed = writer  # without close: what it wrote stays
again = RouteWriter()
again.open()
said["cleared"] = table()
again.write(first, numbers)
again.close()
said["closed"] = table()
print(json.dumps(said))
"""


@pytest.mark.realtime
def test_routes_are_written_replaced_and_removed_and_a_crash_is_cleared_up() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    if "skipped" in said:
        pytest.skip(said["skipped"])
    near = ["0200530A", "00000000", 1, "FFFFFFFF"]
    assert "sysctl net.ipv4.ip_forward=1" in said["not forwarding"]
    assert said["problems"] == []
    assert said["first"] == [
        ["000014AC", "0200530A", 2, "0000FFFF"],
        near,
        ["0300530A", "0200530A", 2, "FFFFFFFF"],
    ]
    assert said["second"] == [near, ["0300530A", "00000000", 1, "FFFFFFFF"]]
    assert len(said["refused"]) == 1 and said["third"] == [near]  # bits beyond the prefix
    assert said["cleared"] == said["closed"] == []
