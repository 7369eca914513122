"""The agreements of `docs/develop/architecture.md` that a machine can check."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from roamcast.extras import NOT_ON_A_DEVICE

SOURCE = Path(__file__).parent.parent / "src" / "roamcast"

VALUES = {
    "units",
    "columns",
    "errors",
    "streams",
    "event",
    "trace",
    "explain",
    "extras",
    "pressure",
    "toml_text",
    "chunks",
}
REGISTRIES = {"registry", "plugins"}
TABLES = {"kit.tables", "kit.numbers"}
KIT = TABLES | {
    f"kit.{part}"
    for part in (
        *("protocol", "confirm", "custody", "newcomers", "rates", "relay", "repair", "replica", "soft_state"),
        *("anti_entropy", "cover", "spread"),
    )
}
MAY_IMPORT: dict[str, set[str]] = {
    "units": set(),
    "columns": set(),
    "errors": set(),
    "streams": set(),
    "explain": {"errors"},
    "extras": set(),
    "toml_text": set(),
    "event": {"units", "errors"},
    "chunks": {"units", "errors", "event"},
    "trace": {"units"},
    # The kit is given file by file: the broker uses its tables, and some of its parts use the broker's store.
    "kit": set(),
    "kit.tables": {"units"},
    "kit.numbers": {"errors"},
    "kit.protocol": VALUES | {"host", "wire"},
    "kit.confirm": VALUES | {"host", "kit.protocol"},
    "kit.custody": VALUES | {"host", "broker", "kit.tables"},
    "kit.newcomers": {"units", "kit.tables"},
    "kit.relay": VALUES | {"host"},
    "kit.replica": set(),
    "kit.soft_state": VALUES | {"host", "kit.protocol"},
    "kit.rates": VALUES | {"host", "kit.protocol"},
    "kit.repair": VALUES | {"host", "broker", "kit.protocol", "kit.tables"},
    "kit.cover": VALUES | {"host", "kit.protocol"},
    "kit.anti_entropy": VALUES | {"host", "broker", "kit.protocol", "kit.custody", "kit.repair"},
    "kit.spread": VALUES
    | {"host", "wire", "broker", "kit.protocol", "kit.newcomers", "kit.relay", "kit.tables"}
    | {"kit.anti_entropy", "kit.cover", "kit.repair"},
    "pressure": {"event"},
    "filter": VALUES,
    "xml": VALUES | {"filter"},
    "modulator": VALUES | REGISTRIES | {"filter"},
    "wire": VALUES,
    "sealing": VALUES | TABLES | {"wire"},
    "world": VALUES | {"registry"},
    "host": VALUES,
    "registry": VALUES,
    "plugins": VALUES | {"registry"},
    "testing": VALUES | {"filter", "host", "broker", "node", "strategy", "runtime"},
    "broker": VALUES | TABLES | {"filter", "modulator", "wire", "host"},
    "underlay": VALUES | KIT | REGISTRIES | {"wire", "host"},
    "strategy": VALUES | KIT | REGISTRIES | {"filter", "modulator", "wire", "host", "broker", "underlay"},
    "node": VALUES | {"filter", "modulator", "sealing", "host", "broker", "underlay", "strategy"},
    "applications": VALUES | TABLES | {"filter", "broker", "modulator", "wire", "node"},
    "exchange": VALUES | TABLES | {"filter", "broker", "wire", "applications"},
    "scenario": VALUES | REGISTRIES | {"filter", "modulator", "xml", "world", "strategy", "underlay"},
    "runtime": VALUES
    | KIT
    | REGISTRIES
    | {"filter", "modulator", "wire", "sealing", "host", "broker", "underlay", "strategy", "node"}
    | {"applications", "exchange", "scenario", "world", "client"},
    "client": VALUES | {"filter", "modulator", "wire", "broker"},
    "gateway": VALUES
    | TABLES
    | {"kit.rates"}
    | {"filter", "modulator", "wire", "broker", "applications", "exchange", "client", "runtime", "pages"},
    "lab": VALUES
    | REGISTRIES
    | {"kit.confirm", "kit.protocol"}  # a study's strategy
    | {"filter", "modulator", "wire", "host", "world", "scenario", "runtime", "strategy", "pages"},
    "daemon": VALUES | REGISTRIES | {"strategy", "underlay", "sealing", "runtime", "gateway"},
    "pages": set(),
    "parts": VALUES | {"registry"},
    "cli": VALUES
    | {"parts", "plugins"}
    | {"lab", "scenario", "strategy", "world", "client", "daemon"}
    | {"gateway", "runtime"},
    "__main__": {"cli"},
}
FORBIDDEN_TO_PROTOCOLS = {"time", "random", "socket", "asyncio", "threading", "datetime", "secrets", "os"}


@cache
def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module, outer ones first. Half of these tests ask for all of them."""
    return tuple(ast.walk(parsed(path)))


@pytest.fixture(scope="module", autouse=True)
def _forgets_the_trees() -> Iterator[None]:
    """They are a hundred megabytes, which the garbage collector would look through in all later tests."""
    yield
    for remembered in (modules, parsed, nodes_of):
        remembered.cache_clear()


def part_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return part_named("roamcast." + ".".join(part for part in parts if part != "__init__" or len(parts) == 1))


def part_named(module: str) -> str:
    """The part that a module belongs to: its top folder or file; of the kit, the file."""
    names = module.split(".")[1:]
    return ".".join(names[:2]) if names[0] == "kit" else names[0]


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            # `from roamcast import strategy` imports the part, not just the package.
            if node.module == "roamcast":
                names.update(f"roamcast.{alias.name}" for alias in node.names)
    return names


def test_imports_point_downwards() -> None:
    wrong = []
    for path in modules():
        part = part_of(path)
        if part == "__init__":
            continue
        own_parts = {part_named(name) for name in imports(path) if name.startswith("roamcast.")}
        if upwards := own_parts - {part, "__version__"} - MAY_IMPORT[part]:
            wrong.append(f"{path.relative_to(SOURCE)} imports {sorted(upwards)}")
    assert not wrong


def test_protocols_touch_no_clock_no_chance_and_no_socket() -> None:
    protocols = {"broker", "underlay", "strategy", "node", "filter", "wire", *KIT}
    wrong = []
    for path in modules():
        roots = {name.split(".")[0] for name in imports(path)}
        if part_of(path) in protocols and (forbidden := roots & FORBIDDEN_TO_PROTOCOLS):
            wrong.append(f"{path.relative_to(SOURCE)} imports {sorted(forbidden)}")
    assert not wrong


def test_every_part_is_in_the_table() -> None:
    assert {part_of(path) for path in modules()} - {"__init__"} == set(MAY_IMPORT)


def loaded_by(script: str) -> set[str]:
    """The modules that a fresh Python has after the script."""
    script += "\nimport sys\nprint(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(ended.stdout.splitlines()[-1].split())


def test_asking_for_help_loads_nothing_but_the_commands() -> None:
    loaded = loaded_by(
        "from click.testing import CliRunner\nfrom roamcast.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0"
    )
    assert not loaded & (NOT_ON_A_DEVICE | {"sqlglot", "msgspec"})
    assert "roamcast.client" not in loaded and "roamcast.daemon" not in loaded


def test_a_node_loads_no_laboratory_whatever_its_strategy() -> None:
    loaded = loaded_by(
        "import roamcast.daemon, roamcast.gateway.mqtt.listener\nfrom roamcast import strategy\n"
        "[strategy.options_type(name)() for name in strategy.names()]"
    )
    assert not loaded & (NOT_ON_A_DEVICE | {"sqlglot"})
    parts = {name.split(".")[1] for name in loaded if name.startswith("roamcast.")}
    assert not parts & {"cli", "lab", "scenario", "testing", "world", "xml"}


def test_a_node_of_built_in_parts_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """Three megabytes of a small device."""
    loaded = loaded_by(
        "import roamcast.gateway.local, roamcast.gateway.mqtt.listener\nfrom pathlib import Path\n"
        "from roamcast.daemon import Daemon, init, load_config\n"
        f"load_config(init(Path({str(tmp_path)!r}, 'node.toml'), mqtt=True))"
    )
    unneeded = {"email", "importlib.metadata", "shutil", "sqlglot", "tempfile"}
    assert not loaded & (unneeded | {"roamcast.client", "roamcast.filter.xpath"})


def test_a_client_loads_no_node() -> None:
    loaded = loaded_by("import roamcast.client.commands")
    parts = {name.split(".")[1] for name in loaded if name.startswith("roamcast.")}
    assert not loaded & (NOT_ON_A_DEVICE | {"sqlglot", "cryptography"})
    assert parts <= {"broker", "chunks", "client", "errors", "event", "units", "wire"}
    assert {name for name in loaded if name.startswith("roamcast.broker.")} == {"roamcast.broker.seen"}


# An object is whole when it is made: nobody puts functions into its attributes afterwards. The reason of each
# exception stands beside it.
TAKES_HANDLERS_LATER = {
    "xml/reader.py",  # a parser of the standard library takes its handlers as attributes
}


def methods_and_fields() -> tuple[set[str], set[str]]:
    """Names that are methods somewhere in the package, and names that are fields of an object."""
    methods: set[str] = set()
    fields: set[str] = set()
    for path in modules():
        for one in nodes_of(path):
            if isinstance(one, ast.ClassDef):
                for inside in one.body:
                    if isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef):
                        (fields if inside.decorator_list else methods).add(inside.name)
                    elif isinstance(inside, ast.AnnAssign) and isinstance(inside.target, ast.Name):
                        fields.add(inside.target.id)
            elif isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
                fields.add(one.attr)
    return methods, fields


def assignments(path: Path) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value; of tuples, one by one."""
    for one in nodes_of(path):
        if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None:
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                if isinstance(target, ast.Tuple) and isinstance(one.value, ast.Tuple):
                    yield from zip(target.elts, one.value.elts, strict=True)
                else:
                    yield target, one.value


def own_methods(path: Path) -> dict[ast.expr, set[str]]:
    """For each expression inside a class: the methods of that class."""
    found: dict[ast.expr, set[str]] = {}
    for one in nodes_of(path):
        if isinstance(one, ast.ClassDef):
            plain = [f for f in one.body if isinstance(f, ast.FunctionDef) and not f.decorator_list]
            names = {method.name for method in plain}
            for inside in ast.walk(one):
                if isinstance(inside, ast.expr):
                    found[inside] = names
    return found


def is_name(one: ast.expr, *names: str) -> bool:
    return isinstance(one, ast.Name) and one.id in names


def test_no_call_back_is_put_into_another_object() -> None:
    methods, fields = methods_and_fields()
    wrong = []
    for path in modules():
        functions = {one.name for one in nodes_of(path) if isinstance(one, ast.FunctionDef)} - fields
        of_class = own_methods(path)
        for target, value in assignments(path):
            if not isinstance(target, ast.Attribute) or is_name(target.value, "self", "cls"):
                continue
            own = of_class.get(value, set()) if ast.unparse(value).startswith("self.") else set()
            is_function = (
                isinstance(value, ast.Lambda)
                or (isinstance(value, ast.Attribute) and value.attr in (methods - fields) | own)
                or (isinstance(value, ast.Name) and value.id in functions - methods)
                or target.attr.lstrip("_").startswith("on_")
            )
            if is_function and str(path.relative_to(SOURCE)) not in TAKES_HANDLERS_LATER:
                wrong.append(f"{path.relative_to(SOURCE)}:{target.lineno}: {ast.unparse(target)}")
    assert wrong == [], "give it to the object when that is made"


# Who in the live runtime touches the machine itself. All others reach it through `runtime/live/world.py`.
TOUCHES_THE_MACHINE = {
    "linux.py",  # the real clocks, disk, sockets and interfaces
    "routes.py",  # the host's own routing table, which a simulated machine does not have
}
MACHINE = {"time", "os", "fcntl", "termios", "secrets", "random", "subprocess", "threading", "signal"}
MACHINE_CALLS = {
    "open",
    "asyncio.get_running_loop",
    "asyncio.get_event_loop",
    "asyncio.open_connection",
    "socket.socket",
    "socket.create_connection",
    "sqlite3.connect",
    "Path.cwd",
    "SystemRandom",
}
FILE_METHODS = {"read_text", "write_text", "read_bytes", "write_bytes", "unlink", "mkdir", "touch", "iterdir"}


def test_a_live_node_touches_the_machine_in_two_places_only() -> None:
    wrong = []
    for path in sorted((SOURCE / "runtime" / "live").rglob("*.py")):
        if path.name in TOUCHES_THE_MACHINE:
            continue
        for one in nodes_of(path):
            found = ""
            if isinstance(one, ast.Import):
                found = ", ".join(name.name for name in one.names if name.name in MACHINE)
            elif isinstance(one, ast.ImportFrom) and one.module in MACHINE:
                kinds = {name.name for name in one.names} - {"Random"}  # seeded by the world
                found = ", ".join(kinds)
            elif isinstance(one, ast.Call):
                called = ast.unparse(one.func)
                if called in MACHINE_CALLS or called.rpartition(".")[2] in FILE_METHODS:
                    found = called
            if found:
                assert isinstance(one, ast.stmt | ast.expr)
                wrong.append(f"{path.relative_to(SOURCE)}:{one.lineno}: {found}")
    assert wrong == []


def test_no_strategy_imports_another() -> None:
    """A mechanism that a second strategy needs moves into the kit."""
    shared = {"base"}  # what every strategy is
    wrong = []
    for path in modules():
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] != "strategy" or (len(parts) == 2 and parts[1] in ("__init__", *shared)):
            continue
        used = {name.split(".")[2] for name in imports(path) if name.startswith("roamcast.strategy.")}
        if others := used - {parts[1]} - shared:
            wrong.append(f"{path.relative_to(SOURCE)} imports {sorted(others)}")
    assert not wrong


# Ratchets: statements (without docstrings) and files of each top folder only fall. Whoever makes one smaller
# lowers its line; raising one needs its reason in the same line.
SIZES: dict[str, tuple[int, int]] = {
    # refused by a disk, tried where there is room, told; several leave a full store at once; order of expiry
    "broker": (1_069, 9),
    "cli": (645, 10),  # check, groups, reconnect, faults by hand, misspelt commands
    "client": (1_222, 8),  # reconnect, failures told, near, no position said, what is sent to a node shown
    "daemon": (722, 7),  # check, of nodes that run too, init without an editor, members of JSON
    "exchange": (385, 3),  # words counted
    "filter": (2_759, 22),  # WITHIN; XPath loaded when asked for
    # JSON, HTTP, tiles, counts, stamps, wills in order; what is noted or in the mesh is not refused; what
    # waits for room outlives its session (11); all answers of a commit in one call (10)
    "gateway": (5_021, 34),
    "kit": (1_382, 15),  # refused after restarts; slow radios; handed to all; fingerprints; single gaps
    "lab": (10_009, 95),  # own control traffic by what is received; packed for workers, lost writes told
    "modulator": (234, 4),
    "modules at the top": (1_726, 19),  # a full store asks in few calls; entry points; alike attributes once
    "pages": (32, 1),
    "runtime": (6_885, 53),  # names told again; faults by hand; notes of what was pushed out, by runs
    "scenario": (715, 6),  # [limit]
    "sealing": (645, 7),  # named statements
    # directed (784); chapar on full channels (17), restarts (13); odmrp (10); tree (7), kept late; order (4);
    # what all neighbours have heard, brief digests (30); many gaps repaired at once (44)
    "strategy": (14_605, 101),  # the tree asks in order and enters once; chapar syncs once
    "testing": (552, 4),  # full relays are a tested promise; so is order
    "underlay": (2_066, 15),  # riders of beacons, brief ones, neighbours of neighbours
    "wire": (709, 7),  # names, whose attributes
    "world": (2_425, 26),  # airtime in one place
    "xml": (529, 5),
}
LOOSE = 25  # statements: a line that is farther above the truth than this is to be lowered


def statements(path: Path) -> int:
    return sum(isinstance(one, ast.stmt) and not is_text(one) for one in nodes_of(path))


def is_text(one: ast.stmt) -> bool:
    """A docstring, or a text below a constant."""
    return (
        isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)
    )


def sizes() -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for path in modules():
        parts = path.relative_to(SOURCE).parts
        room = parts[0] if len(parts) > 1 else "modules at the top"
        counted, files = found.get(room, (0, 0))
        found[room] = counted + statements(path), files + 1
    return found


def test_no_room_grows() -> None:
    now = sizes()
    assert now.keys() == SIZES.keys(), "a new room needs its line"
    grown = {
        room: (now[room], most)
        for room, most in SIZES.items()
        if now[room][0] > most[0] or now[room][1] > most[1]
    }
    assert not grown, f"{grown}: what comes in pays by what goes out"
    loose = {room: now[room] for room, most in SIZES.items() if most[0] - now[room][0] > LOOSE}
    assert not loose, f"smaller than their lines say, lower these: {loose}"


def test_the_name_of_a_class_is_unique() -> None:
    """A reader who searches for it finds one place."""
    places: dict[str, list[str]] = {}
    for path in modules():
        for one in parsed(path).body:
            if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
                places.setdefault(one.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
