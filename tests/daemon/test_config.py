"""A node's file: every problem names its key; the fresh file works; the documentation has every key."""

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from msgspec import inspect

from roamcast.cli import app
from roamcast.daemon.config import Config, clear_passwords, load_config
from roamcast.daemon.fresh import init, write_fresh
from roamcast.errors import FileError, InputError, ScenarioError
from roamcast.gateway.access import hashed
from roamcast.gateway.options import WebOptions
from roamcast.runtime.live.settings import AirMode
from roamcast.sealing import GroupKey, Identity
from roamcast.sealing.content import ContentKey
from roamcast.strategy.opportunistic.adaptation import ADAPTORS

IDENTITY = Identity.generate().to_text()
GROUP = GroupKey.generate().to_text()
KEYS = f'[keys]\nidentity = "{IDENTITY}"\ngroup = ["{GROUP}"]\n'
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "use" / "live.md"


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return load_config(path)


def test_keys_alone_are_a_configuration(tmp_path: Path) -> None:
    config = load(tmp_path, KEYS)
    assert config.node.state is None and config.clients is None and config.mqtt is None
    assert (config.air.port, config.air.mode.value) == (4747, "broadcast")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "keys: is missing"),
        ('[keys]\nidentity = "x"\ngroup = []', "keys.group"),
        (f'[keys]\nidentity = "x"\ngroup = ["{GROUP}"]', "keys.identity: must begin with 'ed25519:'"),
        (f'[keys]\nidentity = "{IDENTITY}"\ngroup = ["{IDENTITY}"]', "keys.group: must begin with 'group:'"),
        (f'[keys]\nidentity = "{IDENTITY[:-4]}"\ngroup = ["{GROUP}"]', "keys.identity: "),
        (KEYS + 'content = ["secret"]', "keys.content: must begin with 'content:'"),
        (KEYS + "encrypt = 1", "keys.encrypt: is 1; allowed: true or false"),
        (KEYS + "[nod]", "nod: is no known key (did you mean `node`?)"),
        (KEYS + "[node]\nnumber = 65536", "node.number: is 65536; allowed: a whole number"),
        (KEYS + "[node]\nnumber = -1", "node.number: is -1"),
        (KEYS + '[node]\nname = ""', "node.name: "),
        (
            KEYS + '[node]\nmodules = ["no_such"]',
            "node.modules: has 'no_such', which cannot be imported",
        ),
        (KEYS + '[node]\nmodules = ["a/b"]', "node.modules[0]: "),
        (KEYS + '[air]\ninterfac = "lo"', "air.interfac: is no known key (did you mean `interface`?)"),
        (KEYS + '[air]\ninterface = "lo"\naddress = "127.0.0.1"', "air.address: stands beside air.interface"),
        (
            KEYS + '[air]\ninterface = "lo"\ninterfaces = ["lo"]',
            "air.interfaces: stands beside air.interface",
        ),
        (KEYS + '[air]\ninterfaces = ["a", "b", "a"]', 'air.interfaces: has "a" twice; allowed: each once'),
        (KEYS + '[air]\ninterfaces = ["a-name-far-too-long"]', "air.interfaces"),
        (
            KEYS + '[air]\ninterface = "\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc"',
            "air.interface: is ",
        ),
        (KEYS + '[air]\nfamily = "ipx"', 'air.family: is "ipx"; allowed: "auto", "ipv4" or "ipv6"'),
        (
            KEYS + '[air]\ngroup_ipv6 = "ff05::1"',
            'air.group_ipv6: is "ff05::1"; allowed: an IPv6 multicast address',
        ),
        (
            KEYS + '[air]\ngroup_ipv6 = "fe80::1"',
            'air.group_ipv6: is "fe80::1"; allowed: an IPv6 multicast address',
        ),
        (KEYS + '[air]\ngroup_ipv6 = "239.1.2.3"', "air.group_ipv6: is"),
        (KEYS + "[air]\nport = 0", "air.port: is 0; allowed: a whole number from 1 to 65,535"),
        (KEYS + "[air]\nport = 5000\nown_port = 5000", "air.own_port: is 5000, the air's own port"),
        (KEYS + '[air]\nmode = "shout"', 'air.mode: is "shout"; allowed: "broadcast" or "multicast"'),
        (KEYS + '[air]\ngroup = "10.0.0.1"', 'air.group: is "10.0.0.1"; allowed: an IPv4 multicast address'),
        (KEYS + "[air]\nlink_timeout = 0.0", "air.link_timeout: is 0.0; allowed: a number from 0.1 to 60"),
        (KEYS + '[strategy]\nname = "floding"', 'strategy.name: is "floding" (did you mean `flooding`?)'),
        (
            KEYS + '[strategy]\nname = "flooding"\noptions = { jiter = 1 }',
            "strategy.options.jiter: is no known key",
        ),
        (KEYS + '[strategy]\nname = "flooding"\noptions = { jitter = -1 }', "strategy.options.jitter: is -1"),
        (KEYS + '[underlay]\nname = "ideal"', 'underlay.name: is "ideal"; allowed: aodv, beacons'),
        (
            KEYS + '[strategy]\nname = "chapar"\n[underlay]\nname = "beacons"',
            'underlay.name: is "beacons", but chapar needs an underlay that names relays',
        ),
        (KEYS + "[underlay]\noptions = { interval = 1 }", "underlay.options: is given without underlay.name"),
        (KEYS + '[metrics]\nlisten = "9747"', 'metrics.listen: is "9747"; allowed: "address:port"'),
        (KEYS + '[metrics]\nlisten = "localhost:99999"', "metrics.listen: "),
        (
            KEYS + '[log]\nlevel = "loud"',
            'log.level: is "loud"; allowed: "debug", "info", "warning" or "error"',
        ),
        (KEYS + '[trace]\nepoch = "now"', "trace.epoch: "),
        (KEYS + '[mqtt]\nport = "x"', "mqtt.port: "),
        (KEYS + "[clients]\nsocket = 3", "clients.socket: is 3; allowed: a text"),
    ],
    ids=lambda text: "" if "identity" in text else text[:40],  # keys are random, names of tests are not
)
def test_a_wrong_key_is_named_with_what_is_allowed(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path, text)
    assert f"node.toml: {problem}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_modules_of_the_users_own_are_imported_before_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_adaptors.py").write_text(
        "from roamcast.strategy.opportunistic.adaptation import ADAPTORS, Adaptor\n"
        "ADAPTORS['own'] = Adaptor\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    strategy = '[strategy]\nname = "opportunistic"\noptions = { adaptors = ["own"] }\n'
    with pytest.raises(ScenarioError, match=r"strategy.options.*own"):
        load(tmp_path, KEYS + strategy)
    load(tmp_path, KEYS + '[node]\nmodules = ["own_adaptors"]\n' + strategy)
    ADAPTORS.pop("own")


def test_no_message_repeats_a_key(tmp_path: Path) -> None:
    secret = IDENTITY.removeprefix("ed25519:")
    for text in (
        f'[keys]\nidentity = "{secret}"\ngroup = ["{GROUP}"]',
        f'[keys]\nidentity = "{IDENTITY}A"\ngroup = ["{GROUP}"]',
        f'[keys]\nidentity = "{IDENTITY}"\ngroup = ["{secret}"]',
        f'[keys]\nidentity = ["{IDENTITY}"]\ngroup = ["{GROUP}"]',
        f'[keys]\nidentity = "{IDENTITY}"\ngroup = "{IDENTITY}"',
    ):
        with pytest.raises(ScenarioError) as caught:
            load(tmp_path, text)
        assert secret[:12] not in str(caught.value)


def test_a_file_that_is_missing_or_no_toml_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read: No such file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(FileError, match=r"node\.toml:1: is no TOML"):
        load(tmp_path, "[keys")


def test_a_fresh_file_is_secret_and_works_and_is_never_overwritten(tmp_path: Path) -> None:
    path = write_fresh(tmp_path / "alice.toml", interface="lo")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = load_config(path)
    assert (config.node.name, config.node.state, config.air.interface) == ("alice", "alice.db", "lo")
    assert config.clients is not None and config.clients.socket == "alice.sock"
    before = path.read_text()
    with pytest.raises(FileError, match="exists already"):
        write_fresh(path)
    assert path.read_text() == before


def test_a_device_needs_no_editor(tmp_path: Path) -> None:
    def made(*words: str) -> Result:
        return CliRunner().invoke(app, ["node", str(tmp_path / "hut.toml"), "--init", *words])

    wrong = made("--strategy", "tre")
    assert wrong.exit_code == 2 and "did you mean `tree`?" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1 and not (tmp_path / "hut.toml").exists()
    places = ("--state", "/var/lib/roamcast/hut.db", "--clients", "/run/roamcast/node.sock")
    assert made("--strategy", "tree", "--mqtt", "--web", *places).exit_code == 0
    config = load_config(tmp_path / "hut.toml")
    assert (config.node.name, config.strategy.name) == ("hut", "tree")
    assert config.node.state == "/var/lib/roamcast/hut.db"
    assert config.clients is not None and config.clients.socket == "/run/roamcast/node.sock"
    assert config.mqtt is not None and config.web is not None
    like = ["node", str(tmp_path / "car.toml"), "--init", "--like", str(tmp_path / "hut.toml")]
    assert CliRunner().invoke(app, [*like, "--strategy", "tree"]).exit_code == 2
    assert CliRunner().invoke(app, like).exit_code == 0
    given = CliRunner().invoke(app, ["node", "x.toml", "--mqtt"])
    assert given.stderr == "roamcast: --mqtt: is given without --init; allowed: only beside it\n"


def test_the_next_node_has_the_same_group_and_another_identity(tmp_path: Path) -> None:
    alice = load_config(init(tmp_path / "alice.toml", interface="lo"))
    bob = load_config(init(tmp_path / "bob.toml", like=tmp_path / "alice.toml"))
    key = tmp_path / "key"
    key.write_text(alice.keys.group[0] + "\n")
    carol = load_config(init(tmp_path / "carol.toml", group_key_file=key))
    assert alice.keys.group == bob.keys.group == carol.keys.group
    assert len({alice.keys.identity, bob.keys.identity, carol.keys.identity}) == 3
    assert bob.air.interface == "lo" and carol.air.interface is None
    key.write_text("secret")
    with pytest.raises(InputError, match=r"--group-key-file .*key: must begin with 'group:'"):
        init(tmp_path / "dave.toml", group_key_file=key)
    with pytest.raises(InputError, match="--group-key-file: stands beside --like"):
        init(tmp_path / "dave.toml", group_key_file=key, like=tmp_path / "alice.toml")


def test_a_node_like_another_has_all_that_must_agree_and_nothing_of_its_own(tmp_path: Path) -> None:
    theirs = tmp_path / "alice.toml"
    theirs.write_text(
        f'''[node]
name = "alice"
number = 7
state = "a.db"
[keys]
identity = "{IDENTITY}"
group = ["{GROUP}", "{GroupKey.generate().to_text()}"]
content = ["{ContentKey.generate().to_text()}"]
encrypt = false
[air]
address = "127.0.0.1"
port = 4999
own_port = 5001
mode = "multicast"
group = "239.1.2.3"
presence = 0.5
queue_frames = 17
[strategy]
name = "chapar"
options = {{ preset = "paper", hash_bits = 12, node_vectors = "bloom" }}
[underlay]
name = "olsr"
options = {{ hello_interval = 0.5 }}
[mqtt]
[metrics]
'''
    )
    alice = load_config(theirs)
    bob = load_config(init(tmp_path / "bob.toml", like=theirs))
    assert (bob.keys.group, bob.keys.encrypt) == (alice.keys.group, False)
    assert (bob.strategy, bob.underlay) == (alice.strategy, alice.underlay)
    air = bob.air
    assert (air.port, air.mode, air.group, air.presence) == (4999, AirMode.MULTICAST, "239.1.2.3", 0.5)
    assert (air.own_port, air.address, air.queue_frames) == (None, None, 1_024)
    assert bob.keys.identity != alice.keys.identity and bob.keys.content == ()
    assert (bob.node.name, bob.node.number, bob.mqtt, bob.metrics) == ("bob", None, None, None)


def test_a_file_of_an_earlier_version_works_and_one_of_a_later_version_names_its_key(tmp_path: Path) -> None:
    old = (Path(__file__).parent / "node-0.2.0.toml").read_text()
    config = load(tmp_path, old.replace("IDENTITY", IDENTITY).replace("GROUP", GROUP))
    assert (config.node.name, config.air.interface, config.keys.invitation) == ("alice", "wlan0", "")
    joined = load_config(init(tmp_path / "bob.toml", like=tmp_path / "node.toml"))
    assert joined.keys.group == config.keys.group
    with pytest.raises(ScenarioError, match=r"node\.toml: keys\.warp: is no known key"):
        load(tmp_path, KEYS + "warp = 9\n")


def every_key(kind: type[Any] = Config) -> list[str]:
    """Dotted, without the gateways' own tables, which have pages of their own."""
    keys = []
    for field in msgspec.structs.fields(kind):
        if field.name in ("clients", "mqtt", "web", "bridge"):
            continue
        info = inspect.type_info(field.type)
        parts = info.types if isinstance(info, inspect.UnionType) else (info,)
        tables = [part.cls for part in parts if isinstance(part, inspect.StructType)]
        keys += [f"{field.name}.{key}" for key in tables[0].__struct_fields__] if tables else [field.name]
    return keys


def test_the_documentation_has_every_key_and_no_other() -> None:
    rows = [
        line.split("|")[1].strip()
        for line in DOCUMENTATION.read_text().splitlines()
        if line.startswith("| `")
    ]
    documented = [row.strip("`") for row in rows if "." in row and " " not in row]
    assert sorted(documented) == sorted(every_key())


WEB = DOCUMENTATION.parent / "web.md"


def test_the_documentation_of_the_page_has_every_option() -> None:
    rows = [line.split("|")[1] for line in WEB.read_text().splitlines() if line.startswith("| `")]
    documented = [word.strip("`") for row in rows for word in row.split()]
    assert sorted(documented) == sorted(WebOptions.__struct_fields__)


def test_mqtt_that_strangers_could_use_is_refused(tmp_path: Path) -> None:
    path = write_fresh(tmp_path / "alice.toml")
    fresh = path.read_text()

    def load_mqtt(table: str) -> Config:
        path.write_text(f"{fresh}\n[mqtt]\n{table}\n")
        return load_config(path)

    open_to_all = 'host = "0.0.0.0"\n'
    with pytest.raises(ScenarioError, match=r"mqtt\.host: is '0\.0\.0\.0' and there are no users.*allowed: "):
        load_mqtt(open_to_all)
    with pytest.raises(ScenarioError, match="the password of 'ada' is too short"):
        load_mqtt(open_to_all + 'users = { ada = "short" }')
    certificates = 'tls_certificate = "own.pem"\ntls_client_authority = "ours.pem"\n'
    with pytest.raises(ScenarioError, match="there are no users"):
        load_mqtt(open_to_all + certificates)  # the plain port asks for no certificate
    load_mqtt(open_to_all + certificates + "plain = false")
    secret = hashed("a long password")
    assert clear_passwords(load_mqtt(open_to_all + f'users = {{ ada = "{secret}" }}')) == []
    mixed = load_mqtt(f'users = {{ ada = "{secret}", bob = "x" }}\n[web]\nusers = {{ eve = "y" }}')
    assert clear_passwords(mixed) == ["mqtt.users.bob", "web.users.eve"]
    with pytest.raises(
        ScenarioError, match=r"mqtt\.users\.ada: cannot be used; allowed: what `roamcast key password` prints"
    ):
        load_mqtt('users = { ada = "scrypt:13:x:y" }')


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('host = "0.0.0.0"', "web.host: is '0.0.0.0' and there are no users"),
        ('host = "10.0.0.1"\nusers = { ada = "short" }', "the password of 'ada' is too short"),
        (
            'users = { ada = "one" }\n[mqtt]\nusers = { ada = "other" }',
            "has another password under mqtt.users",
        ),
        ("users = { ada = 12345678 }", "web.users"),
        ("port = 70000", "web.port"),
        ("password = 1", "web.password"),
    ],
)
def test_a_page_that_strangers_could_use_is_refused(tmp_path: Path, table: str, problem: str) -> None:
    path = write_fresh(tmp_path / "alice.toml")
    path.write_text(f"{path.read_text()}\n[web]\n{table}\n")
    with pytest.raises(ScenarioError) as refused:
        load_config(path)
    assert problem in str(refused.value) and "12345678" not in str(refused.value)
    assert "\n" not in str(refused.value)
