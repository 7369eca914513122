"""What sealing costs per frame of 300 octets; what refused frames, signatures and stored events cost.

    python benchmarks/sealing.py [--runs N] [--json]

Microseconds of processor time, best of N rounds; for the storage wall-clock time. The ratio compares a frame
that is encoded, sealed, sent over a UDP socket on loopback, received, opened and decoded with one that is not
sealed, in the same run. Exits 1 when sealing and opening together need more than 10 µs, or a refused frame
more than 20 µs; a busy machine needs more rounds, not a softer limit.
"""

import argparse
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

import series
from roamcast.event import Event, EventClass
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.storage.database import Durability, NodeStorage
from roamcast.sealing import FrameOpener, GroupKey, Identity, KeyRing, PeerProof, Sealer, SealError
from roamcast.sealing.content import ContentKey, ContentKeys
from roamcast.sealing.identity import is_signed
from roamcast.strategy.chapar.messages import CODEC, Carry
from roamcast.units import SECOND

OCTETS = 300
FRAMES = 5_000
PAIR_LIMIT_US = 10.0
REFUSED_LIMIT_US = 20.0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=7)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    calibration = series.calibration()
    figures = {
        **frames(options.runs),
        **refusals(options.runs),
        **ciphers(options.runs),
        **signatures(options.runs),
        **content(options.runs),
        **storage(),
    }
    figures = {name: round(value, 2) for name, value in figures.items()}
    series.give("sealed over unsealed frame", figures["sealed_to_unsealed"])
    series.give("seal and open, 100,000", figures["seal_and_open_us"] / 10 / calibration)
    series.show(figures, options.json)
    refused = max(value for name, value in figures.items() if name.startswith("refused"))
    return 0 if figures["seal_and_open_us"] <= PAIR_LIMIT_US and refused <= REFUSED_LIMIT_US else 1


def frames(runs: int) -> dict[str, float]:
    message = Carry(Event(1, 1, {"level": 5, "zone": "north"}, bytes(235)), b"\x05", 1)
    payload = CODEC.encode(message) + bytes(OCTETS)
    payload = payload[:OCTETS]
    figures = {}
    for name, encrypt in (("", True), ("clear_", False)):
        sealer, opener = pair(encrypt)
        sealing = best(runs, seal_all, sealer, payload)
        opening = min(open_all(opener, [sealer.seal(1, payload) for _ in range(FRAMES)]) for _ in range(runs))
        figures[f"{name}seal_us"] = sealing / FRAMES
        figures[f"{name}open_us"] = opening / FRAMES
        figures[f"{name}seal_and_open_us"] = (sealing + opening) / FRAMES
    sealer, opener = pair(True)
    with socket.socket(type=socket.SOCK_DGRAM) as sending, socket.socket(type=socket.SOCK_DGRAM) as receiving:
        receiving.bind(("127.0.0.1", 0))
        to = receiving.getsockname()

        def plain() -> None:
            for _ in range(FRAMES):
                sending.sendto(CODEC.encode(message), to)
                CODEC.decode(receiving.recv(2_048))

        def sealed() -> None:
            for _ in range(FRAMES):
                sending.sendto(sealer.seal(1, CODEC.encode(message)), to)
                CODEC.decode(opener.open(receiving.recv(2_048)).payload)

        figures["unsealed_frame_us"] = best(runs, plain) / FRAMES
        figures["sealed_frame_us"] = best(runs, sealed) / FRAMES
    figures["sealed_to_unsealed"] = figures["sealed_frame_us"] / figures["unsealed_frame_us"]
    return figures


def refusals(runs: int) -> dict[str, float]:
    sealer, opener = pair(True)
    stranger = Sealer(Identity.generate(), sealer.ring, 1)
    outsider = Sealer(Identity.generate(), KeyRing(GroupKey.generate()), 1)
    replayed = sealer.seal(1, bytes(OCTETS))
    opener.open(replayed)
    forged = replayed[:15] + b"\xff" + replayed[16:]
    of_strangers = bytearray(forged)
    of_strangers[4:8] = b"\1\2\3\4"
    cases = {
        "garbage": os.urandom(OCTETS),
        "truncated": replayed[:20],
        "replayed": replayed,
        "wrong_key": outsider.seal(1, bytes(OCTETS)),
        "forged": forged,
        "forged_of_a_stranger": bytes(of_strangers),
        "recorded_of_a_stranger": stranger.seal(1, bytes(OCTETS)),
    }
    return {
        f"refused_{name}_us": best(runs, refuse_all, opener, data) / FRAMES for name, data in cases.items()
    }


def ciphers(runs: int) -> dict[str, float]:
    """Why ChaCha20-Poly1305: here AES has instructions of its own, on small boards it has not."""
    key, nonce, header, payload = os.urandom(32), bytes(12), bytes(16), bytes(OCTETS)
    figures = {}
    for name, cipher in (("chacha20_poly1305", ChaCha20Poly1305(key)), ("aes_256_gcm", AESGCM(key))):
        sealed = cipher.encrypt(nonce, payload, header)

        def both(cipher: ChaCha20Poly1305 | AESGCM = cipher, sealed: bytes = sealed) -> None:
            for _ in range(FRAMES):
                cipher.encrypt(nonce, payload, header)
                cipher.decrypt(nonce, sealed, header)

        figures[f"{name}_both_ways_us"] = best(runs, both) / FRAMES
    return figures


def signatures(runs: int) -> dict[str, float]:
    """What a signature on every frame would cost, beside 64 octets."""
    identity, payload, times = Identity.generate(), bytes(OCTETS), 300
    signature = identity.sign(payload)
    sign = best(runs, lambda: [identity.sign(payload) for _ in range(times)])
    verify = best(runs, lambda: [is_signed(identity.public_key, signature, payload) for _ in range(times)])
    return {"ed25519_sign_us": sign / times, "ed25519_verify_us": verify / times}


def content(runs: int) -> dict[str, float]:
    keys = ContentKeys(ContentKey.generate())
    clear = Event(1, 1, {"level": 5, "zone": "north"}, bytes(200))
    sealed = keys.seal(clear, bytes(10))
    times = 1_000
    seal = best(runs, lambda: [keys.seal(clear, bytes(10)) for _ in range(times)])
    opening = best(runs, lambda: [keys.open(sealed) for _ in range(times)])
    return {"content_seal_us": seal / times, "content_open_us": opening / times}


def storage() -> dict[str, float]:
    """Memorized events of 200 octets, one commit each or one for a hundred; and one number reserved."""
    figures = {}
    durabilities: tuple[Durability, ...] = ("power", "process")
    with tempfile.TemporaryDirectory() as folder:
        for durability in durabilities:
            storage = NodeStorage(LocalDisk(), Path(folder) / f"{durability}.db", durability=durability)
            sequence = 0
            for together in (1, 100):
                began, count = time.perf_counter(), 300 if together == 1 else 3_000
                for _ in range(count):
                    sequence += 1
                    event = Event(1, sequence, {}, bytes(200), event_class=EventClass.MEMORIZED)
                    storage.keep(event, 3_600 * SECOND, 0, time.time_ns() // 1_000)
                    if sequence % together == 0:
                        storage.commit()
                storage.commit()
                elapsed = (time.perf_counter() - began) * 1e6 / count
                figures[f"keep_{durability}_{together}_per_commit_us"] = elapsed
            began = time.perf_counter()
            for number in range(300):
                storage.stable["sequence"] = number.to_bytes(8, "big")
            figures[f"stable_{durability}_us"] = (time.perf_counter() - began) * 1e6 / 300
            storage.close()
    return figures


def pair(encrypt: bool) -> tuple[Sealer, FrameOpener]:
    """A sealer, and an opener to which it has proven itself."""
    ring = KeyRing(GroupKey.generate())
    sender, receiver = (Sealer(Identity.generate(), ring, 1, encrypt) for _ in range(2))
    senders: dict[int, Known] = {}
    opener, answering = (FrameOpener(one, {}, senders, Owner()) for one in (receiver, sender))
    hear(opener, sender.seal(1, b""))
    hear(answering, opener.announcement())
    proven = opener.open(answering.announcement())
    senders[proven.sender] = Known(proven.proof)
    assert opener.proven() == [sender.identity.node]
    return sender, opener


class Known:
    def __init__(self, proof: PeerProof | None) -> None:
        self.proof = proof


class Owner:
    def own_profile(self) -> bytes:
        return b""

    def on_evicted(self, table: str) -> None:
        pass


def hear(opener: FrameOpener, data: bytes) -> None:
    with suppress(SealError):
        opener.open(data)


def seal_all(sealer: Sealer, payload: bytes) -> None:
    for _ in range(FRAMES):
        sealer.seal(1, payload)


def open_all(opener: FrameOpener, data: list[bytes]) -> float:
    began = time.process_time()
    for frame in data:
        opener.open(frame)
    return (time.process_time() - began) * 1e6


def refuse_all(opener: FrameOpener, data: bytes) -> None:
    for _ in range(FRAMES):
        try:
            opener.open(data)
        except SealError:
            continue
        raise AssertionError("opened what had to be refused")


def best(runs: int, action: Callable[..., object], *arguments: object) -> float:
    """Microseconds of processor time."""
    times = []
    for _ in range(runs):
        began = time.process_time()
        action(*arguments)
        times.append(time.process_time() - began)
    return min(times) * 1e6


if __name__ == "__main__":
    sys.exit(main())
