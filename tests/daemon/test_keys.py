"""`roamcast key` and `roamcast join`, from the command to the files: who is let in, by what, and when not."""

import base64
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import assume, given
from hypothesis import strategies as st

from roamcast.cli import app
from roamcast.daemon import keys
from roamcast.daemon.config import load_config
from roamcast.daemon.fresh import NetworkSettings, init
from roamcast.daemon.keys import read_invitation
from roamcast.errors import InputError
from roamcast.gateway.access import Accounts
from roamcast.sealing import GroupKey, Identity
from roamcast.sealing.content import ContentKey

GROUP = GroupKey.generate().to_text()


def call(*words: object, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=typed)


def refused(ended: Result) -> str:
    assert ended.exit_code == 2, ended.output
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    return ended.stderr


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    (tmp_path / "alice").mkdir()
    path = init(tmp_path / "alice" / "alice.toml", interface="lo")
    text = path.read_text().replace("# port = 4747", "port = 4999 #")
    text = text.replace("# content = ", f'content = ["{ContentKey.generate().to_text()}"] #')
    path.write_text(
        text + '[strategy]\nname = "chapar"\noptions = { preset = "paper", node_vectors = "bloom" }\n'
    )
    return path


def test_an_invited_device_has_all_that_it_needs_and_an_identity_of_its_own(
    alice: Path, tmp_path: Path
) -> None:
    text = call("key", "invite", alice).stdout
    assert len(text.splitlines()) == 1, "in a pipe there is no picture"
    wrapped = "\n".join(text[at : at + 30] for at in range(0, len(text), 30)).lower()  # as a chat may have it
    joined = call("join", tmp_path / "bob.toml", typed=wrapped)
    assert joined.exit_code == 0, joined.output
    one, other = load_config(alice), load_config(tmp_path / "bob.toml")
    assert other.keys.group == one.keys.group and other.strategy == one.strategy and other.air.port == 4999
    assert other.keys.identity != one.keys.identity and other.keys.content == ()
    assert stat.S_IMODE((tmp_path / "bob.toml").stat().st_mode) == 0o600
    letters = text.strip().removeprefix("ROAMCAST:")
    inside = base64.b32decode(letters + "=" * (-len(letters) % 8))
    assert base64.b64decode(one.keys.group[0].partition(":")[2]) in inside, (
        "else the next line proves nothing"
    )
    assert base64.b64decode(one.keys.identity.partition(":")[2]) not in inside
    with_content = call("key", "invite", alice, "--content").stdout
    (tmp_path / "file").write_text(with_content)
    assert call("join", tmp_path / "carol.toml", "--invitation", tmp_path / "file").exit_code == 0
    assert load_config(tmp_path / "carol.toml").keys.content == one.keys.content


def test_an_invitation_is_used_once_in_a_folder_and_never_after_its_time(
    alice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = call("key", "invite", alice, "--hours", "2").stdout
    assert call("join", tmp_path / "bob.toml", typed=text).exit_code == 0
    assert "was used already, for bob.toml" in refused(call("join", tmp_path / "carol.toml", typed=text))
    late = call("key", "invite", alice, "--hours", "2").stdout
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3 * 3600)
    assert "expired 60 min ago" in refused(call("join", tmp_path / "carol.toml", typed=late))
    monkeypatch.setattr(time, "time", lambda: 1000.0)  # a board whose clock is not set
    assert call("join", tmp_path / "dave.toml", typed=late).exit_code == 0
    assert not (tmp_path / "carol.toml").exists()


WHOLE = (  # a fixed one: a new invitation has another number and checksum each time, and so other letters
    "ROAMCAST:PZJSZE42AHCAQAABAIBQIBIGA7HHONMUACI4IIAAAEBAGBAFAYDQQCIKBMGA2DQPCAIREEYUCULBOGAZDINRYHI6D7BYBEWAQCJMBAEQSA"
)


@given(
    st.integers(len("ROAMCAST:"), len(WHOLE) - 1),
    st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ2345679!") | st.none(),
)
def test_a_damaged_invitation_is_refused_wherever_the_damage_is(at: int, letter: str | None) -> None:
    """Another letter in one place, or the rest is missing from there on."""
    assume(letter != WHOLE[at])
    damaged = WHOLE[:at] if letter is None else WHOLE[:at] + letter + WHOLE[at + 1 :]
    try:
        read = read_invitation(damaged)
    except InputError:
        pass
    else:  # the last letter has bits that mean nothing
        assert read == read_invitation(WHOLE)


@pytest.mark.parametrize("text", ["", "hello", "ROAMCAST:", "ROAMCAST:AAAA", "ROAMCAST:" + "A" * 100_000])
def test_what_is_no_invitation_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    assert "invitation: is " in refused(call("join", tmp_path / "a.toml", typed=text))
    assert not (tmp_path / "a.toml").exists()


def test_an_invitation_of_a_later_version_says_so(tmp_path: Path) -> None:
    packed = msgspec.msgpack.encode([9, bytes(8), 2_000_000_000, [bytes(32)], "what comes later"])
    text = "ROAMCAST:" + base64.b32encode(keys.checksum(packed) + packed).decode()
    assert "is of another version" in refused(call("join", tmp_path / "a.toml", typed=text))


def test_a_code_for_the_camera_is_drawn_where_it_is_asked_for(alice: Path) -> None:
    pytest.importorskip("segno")
    ended = subprocess.run(
        [sys.executable, "-m", "roamcast", "key", "invite", str(alice), "--qr"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("ROAMCAST:") and len(lines) > 20
    assert set("".join(lines[1:])) <= set(" █▀▄")


def test_fresh_keys_are_printed_and_shown_only_by_their_ids(alice: Path) -> None:
    assert GroupKey.from_text(call("key", "group").stdout.strip())
    assert ContentKey.from_text(call("key", "content").stdout.strip())
    assert Identity.from_text(call("key", "identity").stdout.strip())
    keys = load_config(alice).keys
    said = call("key", "show", alice).stdout
    assert f"{GroupKey.from_text(keys.group[0]).id:04x} (seals)" in said
    for secret in (keys.identity, *keys.group, *keys.content):
        assert secret.partition(":")[2][:12] not in said


def test_a_group_key_is_changed_in_three_steps_and_the_rest_of_the_file_stays(
    alice: Path, tmp_path: Path
) -> None:
    bob = init(tmp_path / "bob.toml", like=alice)
    old, before = load_config(alice).keys.group[0], alice.read_text()
    assert call("key", "rotate", alice, "--out", tmp_path / "new.key").exit_code == 0
    new = (tmp_path / "new.key").read_text().strip()
    assert stat.S_IMODE((tmp_path / "new.key").stat().st_mode) == 0o600
    assert call("key", "rotate", bob, "--key-file", "-", typed=new).exit_code == 0
    assert load_config(alice).keys.group == load_config(bob).keys.group == (old, new)
    assert "accepts this key already" in refused(
        call("key", "rotate", bob, "--key-file", tmp_path / "new.key")
    )
    assert call("key", "rotate", alice, "--send").exit_code == 0
    assert load_config(alice).keys.group == (new, old)
    assert call("key", "rotate", alice, "--finish").exit_code == 0
    assert load_config(alice).keys.group == (new,)
    assert alice.read_text() == before.replace(old, new)
    assert stat.S_IMODE(alice.stat().st_mode) == 0o600
    assert "has one group key" in refused(call("key", "rotate", alice, "--send"))
    assert "one step at a time" in refused(call("key", "rotate", alice, "--send", "--finish"))
    assert "--out: is missing" in refused(call("key", "rotate", alice))


def test_a_group_key_is_on_the_disk_before_the_file_has_its_name(
    alice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(number: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{number}')).name}")
        fsync(number)

    def replaced(source: Path, target: Path) -> None:
        done.append(f"replace {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    assert call("key", "rotate", alice, "--out", tmp_path / "new.key").exit_code == 0
    folder = alice.parent.name
    assert done == [
        *("sync new.key", f"sync {tmp_path.name}"),
        *("sync .alice.toml.new", f"sync {folder}", "replace alice.toml", f"sync {folder}"),
    ]


def test_an_invitation_runs_no_code_that_nobody_asked_for(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"
    (tmp_path / "strange_parts.py").write_text(code)
    (tmp_path / "other.toml").write_text('[node]\nmodules = ["strange_parts"]\n')
    network = NetworkSettings(group=(GROUP,), modules=("strange_parts",))
    text = keys.to_invitation_text(network, (), int(time.time()) + 100)
    problem = refused(call("join", tmp_path / "bob.toml", typed=text))
    assert "names Python modules" in problem and "strange_parts" in problem and "--modules" in problem
    assert not (tmp_path / "bob.toml").exists() and not ran.exists()
    harmless = keys.to_invitation_text(NetworkSettings(group=(GROUP,)), (), int(time.time()) + 100)
    assert call("join", tmp_path / "carol.toml", typed=harmless).exit_code == 0
    assert not ran.exists(), "nor does a file that lies beside the new one"
    assert call("join", tmp_path / "bob.toml", "--modules", typed=text).exit_code == 0 and ran.exists()


def test_a_password_is_read_and_its_hash_printed() -> None:
    ended = call("key", "password", typed="a long password\n")
    assert Accounts({"ada": ended.stdout.strip()}).admission("ada", b"a long password", "", 0) == "yes"
    assert "too short" in refused(call("key", "password", typed="short\n"))


def test_no_command_takes_a_secret_as_an_argument() -> None:
    ended = call("node", "--init", "x.toml", "--group-key", GROUP)
    assert ended.exit_code == 2 and "--group-key-file" in ended.stderr
