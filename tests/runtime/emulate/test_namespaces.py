import os
import subprocess
import sys

import pytest

from roamcast.errors import InputError
from roamcast.runtime.emulate import namespaces as spaces

pytestmark = pytest.mark.realtime

LOOK = """
import os, sys
from roamcast.runtime.emulate.namespaces import allow_namespaces, enter, make_namespaces
allow_namespaces()
made = make_namespaces(2)
for space in made:
    if os.fork() == 0:
        enter(space.network)
        sys.stdout.write(open("/proc/net/dev").read())
        sys.stdout.write(open("/proc/net/fib_trie").read())
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""

# After `setuid` the kernel guards a process's own files from it, until it says that nothing in it is secret.
NOBODY = LOOK.replace(
    "allow_namespaces()\n",
    "import ctypes\n"
    "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    "ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"
    "allow_namespaces()\n",
)


@pytest.mark.usefixtures("namespaces")
def test_each_namespace_has_a_loopback_and_the_air_with_its_address() -> None:
    seen = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True).stdout
    assert seen.count("air0:") == 2
    assert seen.count(" lo:") == 2
    assert "10.83.0.1" in seen and "10.83.0.2" in seen


@pytest.mark.usefixtures("namespaces")
@pytest.mark.skipif(
    os.geteuid() != 0, reason="shows that root is not needed, so it must be root to begin with"
)
def test_an_ordinary_user_can_make_them() -> None:
    if os.stat(spaces.TUN_DEVICE).st_mode & 0o006 != 0o006:
        pytest.skip(f"{spaces.TUN_DEVICE} of this machine is closed to ordinary users")
    ran = subprocess.run([sys.executable, "-c", NOBODY], capture_output=True, text=True, check=False)
    if "refused by the kernel" in ran.stderr:
        pytest.skip(f"not on this kernel: {ran.stderr.strip().splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("air0:") == 2


def test_a_machine_without_tap_devices_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "TUN_DEVICE", "/dev/net/no-such-device")
    with pytest.raises(InputError, match=r"^/dev/net/no-such-device: is missing") as caught:
        spaces.allow_namespaces()
    assert "\n" not in str(caught.value)


def test_addresses_differ() -> None:
    nodes = range(spaces.NODES_MAX)
    assert len({spaces.address_of(node) for node in nodes}) == spaces.NODES_MAX
    assert len({spaces.mac_of(node) for node in nodes}) == spaces.NODES_MAX
    assert not any(spaces.mac_of(node)[0] & 1 for node in nodes)
