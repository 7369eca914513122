"""The agreements of `docs/architecture.md` that a machine can check."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "roamcast"

VALUES = {"units", "errors", "streams", "event", "trace", "explain"}
REGISTRIES = {"registry", "plugins"}
MAY_IMPORT: dict[str, set[str]] = {
    "units": set(),
    "errors": set(),
    "streams": set(),
    "explain": {"errors"},
    "event": {"units", "errors"},
    "trace": {"units"},
    "filter": VALUES,
    "xml": VALUES | {"filter"},
    "modulator": VALUES | REGISTRIES | {"filter"},
    "wire": VALUES,
    "sealing": VALUES | {"wire"},
    "world": VALUES | {"registry"},
    "host": VALUES,
    "registry": VALUES,
    "plugins": VALUES | {"registry"},
    "testing": VALUES | {"filter", "host", "broker", "node", "strategy", "runtime"},
    "broker": VALUES | {"filter", "modulator", "wire", "host"},
    "underlay": VALUES | REGISTRIES | {"wire", "host"},
    "strategy": VALUES | REGISTRIES | {"filter", "modulator", "wire", "host", "broker", "underlay"},
    "node": VALUES | {"filter", "modulator", "sealing", "host", "broker", "underlay", "strategy"},
    "applications": VALUES | {"filter", "broker", "modulator", "node"},
    "scenario": VALUES | REGISTRIES | {"filter", "modulator", "xml", "world", "strategy", "underlay"},
    "runtime": VALUES
    | REGISTRIES
    | {"filter", "modulator", "wire", "sealing", "host", "broker", "underlay", "strategy", "node"}
    | {"applications", "scenario", "world", "client"},
    "client": VALUES | {"filter", "modulator", "wire", "broker"},
    "gateway": VALUES | {"filter", "modulator", "wire", "broker", "applications", "client", "runtime"},
    "lab": VALUES | REGISTRIES | {"filter", "modulator", "world", "scenario", "runtime", "strategy"},
    "daemon": VALUES | REGISTRIES | {"scenario", "strategy", "underlay", "sealing", "runtime", "gateway"},
    "parts": VALUES | {"registry"},
    "cli": VALUES | {"parts", "plugins"} | {"lab", "scenario", "strategy", "world", "client", "daemon"},
    "__main__": {"cli"},
}
FORBIDDEN_TO_PROTOCOLS = {"time", "random", "socket", "asyncio", "threading", "datetime", "secrets", "os"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
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
        own_parts = {name.split(".")[1] for name in imports(path) if name.startswith("roamcast.")}
        if upwards := own_parts - {part, "__version__"} - MAY_IMPORT[part]:
            wrong.append(f"{path.relative_to(SOURCE)} imports {sorted(upwards)}")
    assert not wrong


def test_protocols_touch_no_clock_no_chance_and_no_socket() -> None:
    protocols = {"broker", "underlay", "strategy", "node", "filter", "wire"}
    wrong = []
    for path in modules():
        roots = {name.split(".")[0] for name in imports(path)}
        if part_of(path) in protocols and (forbidden := roots & FORBIDDEN_TO_PROTOCOLS):
            wrong.append(f"{path.relative_to(SOURCE)} imports {sorted(forbidden)}")
    assert not wrong


def test_every_part_is_in_the_table() -> None:
    assert {part_of(path) for path in modules()} - {"__init__"} == set(MAY_IMPORT)


def test_importing_roamcast_and_asking_for_help_loads_neither_spark_nor_pandas() -> None:
    script = (
        "import sys, roamcast, roamcast.cli\n"
        "from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(roamcast.cli.app, ['--help']).exit_code == 0\n"
        "heavy = {'pyspark', 'pandas', 'matplotlib', 'pyarrow', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
