"""An object store on this machine: moto's S3 server in a process of its own. For any test that wants one:

from tests.lab.storage.object_store import object_store  # noqa: F401

def test_…(object_store: ObjectStore) -> None:
    Storage.open(object_store.uri("sweep"))
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from pyarrow import fs  # type: ignore[import-untyped]

BUCKET = "study"
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # until the test closes it, or ends
"""


@dataclass(frozen=True)
class ObjectStore:
    """A running store with one empty bucket. `environment` is what a program needs to use it."""

    endpoint: str

    def uri(self, key: str, scheme: str = "s3") -> str:
        return f"{scheme}://{BUCKET}/{key}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def object_store_here() -> Iterator[ObjectStore]:
    started = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
    )
    assert started.stdin is not None and started.stdout is not None
    try:
        assert select.select([started.stdout], [], [], 120)[0], "the object store did not start"
        address = f"127.0.0.1:{int(started.stdout.readline())}"
        creator = fs.S3FileSystem(
            access_key="test",
            secret_key="test",
            endpoint_override=address,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        creator.create_dir(BUCKET)
        yield ObjectStore(f"http://{address}")
    finally:
        started.stdin.close()
        started.wait(60)
        started.stdout.close()


@pytest.fixture(scope="module")
def running_object_store() -> Iterator[ObjectStore]:
    with object_store_here() as running:
        yield running


@pytest.fixture
def object_store(running_object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The store, with this process's environment set for it."""
    for name, value in running_object_store.environment.items():
        monkeypatch.setenv(name, value)
    return running_object_store
