"""Two live nodes of the strategy `opportunistic` that know an example's functions."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon.programs import STARTED_WITHIN, network_on_loopback


@contextmanager
def nodes_with_functions(folder: Path, functions: Path) -> Iterator[tuple[Path, Path]]:
    """The sockets of both, once they answer."""
    (folder / functions.name).write_text(functions.read_text())
    nodes = network_on_loopback(folder, "one", "other")
    try:
        for node in nodes:
            text = node.config.read_text()
            node.config.write_text(text.replace("[node]", f'[node]\nmodules = ["{functions.stem}"]', 1))
            node.add('[strategy]\nname = "opportunistic"')
            node.start()
        end = time.monotonic() + STARTED_WITHIN
        while not all(node.socket.exists() for node in nodes):
            assert time.monotonic() < end, [node.log for node in nodes]
            time.sleep(0.05)
        yield nodes[0].socket, nodes[1].socket
    finally:
        for node in nodes:
            node.kill()
