"""Modules from outside the tree that add parts: named in a file, found beside it or installed.

`modules = ["gossip"]` in a scenario, experiment or node file means `gossip.py` or `gossip/` beside that file
if there is one, and else an installed module of that name. Whatever the module adds to a registry while it
is imported can be named from then on. A module beside a file that has changed since is loaded anew.

Modules are loaded in the order of the list. One beside a file may import those listed before it.

Other processes get the same code: `Shipment` carries the files of modules that lie beside a file, and the
names of the installed ones. A Spark worker unpacks it before a run; an emulated node finds the files
beside its own.
"""

import atexit
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from roamcast.errors import FileError, ScenarioError
from roamcast.registry import Plugin, PluginError, Registry, in_a_line, loading

ModuleName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][\w.]*$", max_length=200)]
ModuleNames: TypeAlias = Annotated[tuple[ModuleName, ...], msgspec.Meta(max_length=64)]

PACKAGE_BYTES_MAX = 10_000_000  # of the modules beside one file, so that nobody ships a data set by mistake


class _Beside(NamedTuple):
    plugin: Plugin
    added: list[tuple[Registry[Any, Any, Any], str]]


_beside: dict[str, _Beside] = {}  # the modules that were loaded from beside a file, by their names


def load_modules(names: Iterable[str], folder: Path, key: str) -> list[Plugin]:
    """Import each; `ScenarioError` at `key` for the first that cannot be imported."""
    loaded = []
    for name in names:
        try:
            loaded.append(_load(name, folder))
        except PluginError as error:
            raise ScenarioError(key, f"has {name!r}, which cannot be used: {error}") from error
        except Exception as error:
            place = f" from {path}" if (path := _path(name, folder)) else ""
            raise ScenarioError(
                key, f"has {name!r}, which cannot be imported{place}: {in_a_line(error)}"
            ) from error
    return loaded


def modules_in(tables: Mapping[str, Any], table: str) -> list[str]:
    """The key `modules` of a table that has not been checked yet; errors in it are reported later."""
    section = tables.get(table)
    names = section.get("modules") if isinstance(section, Mapping) else None
    if not isinstance(names, list | tuple):
        return []
    return [name for name in names if isinstance(name, str) and all(map(str.isidentifier, name.split(".")))]


class Shipment(NamedTuple):
    """Plug-ins to be sent to another process."""

    plugins: tuple[Plugin, ...] = ()

    @property
    def digests(self) -> dict[str, str]:
        """By file name, digests of the modules: the code that results depend on."""
        return {
            name: hashlib.sha256(content).hexdigest()
            for plugin in self.plugins
            for name, content in plugin.files or _installed(plugin.module)
        }

    @property
    def modules(self) -> list[str]:
        return [plugin.module for plugin in self.plugins]

    def write(self, folder: Path) -> None:
        """Write the files, laid out as they were beside the original file."""
        for plugin in self.plugins:
            for name, content in plugin.files:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def unpack(self) -> None:
        """Load everything here; `PluginError` names what cannot be loaded, and where it came from."""
        for plugin in self.plugins:
            try:
                if not plugin.files:
                    with loading(plugin):
                        importlib.import_module(plugin.module)
                elif not _is_loaded(plugin):
                    _load(plugin.module, _unpacked(self, plugin), plugin.origin)
            except PluginError:
                raise
            except Exception as error:
                raise PluginError(
                    f"module {plugin.module!r} ({plugin.origin})", f"cannot be imported: {in_a_line(error)}"
                ) from error


NOTHING_SHIPPED = Shipment()


def shipment(plugins: Iterable[Plugin | None]) -> Shipment:
    """Each once, in their order."""
    return Shipment(tuple(dict.fromkeys(plugin for plugin in plugins if plugin is not None)))


def _load(name: str, folder: Path, origin: str | None = None) -> Plugin:
    root = name.partition(".")[0]
    path = _path(name, folder)
    if path is None:
        plugin = _beside[root].plugin if root in _beside else Plugin(name, f"module {name}")
        with loading(plugin):
            importlib.import_module(name)
        return plugin
    known = sys.modules.get(root)
    if root not in _beside and known is not None:
        if Path(getattr(known, "__file__", None) or "").resolve() != path.resolve():
            raise ImportError(f"another module has this name, {getattr(known, '__file__', 'built in')}")
        importlib.import_module(name)
        return Plugin(name, str(path), tuple(_files(path)))
    plugin = Plugin(name, origin or str(path), tuple(_files(path)))
    if not _is_loaded(plugin):
        _forget(root)
        added = _imported(plugin, root, path)
        _beside[root] = _Beside(plugin, added)
    importlib.import_module(name)
    return plugin


def _imported(plugin: Plugin, root: str, path: Path) -> list[tuple[Registry[Any, Any, Any], str]]:
    """Import a module as the import system does, but from this path only."""
    search = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(root, path, submodule_search_locations=search)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The file's own content, never an older one that was compiled within the same second.
    source = dict(plugin.files)[_relative(path)]
    with loading(plugin) as added:
        sys.modules[root] = module
        try:
            exec(compile(source, str(path), "exec"), module.__dict__)
            if plugin.module != root:
                importlib.import_module(plugin.module)
        except BaseException:
            _drop(root)
            raise
    return added


def _is_loaded(plugin: Plugin) -> bool:
    held = _beside.get(plugin.module.partition(".")[0])
    return held is not None and held.plugin.files == plugin.files and held.plugin.module == plugin.module


def _forget(root: str) -> None:
    held = _beside.pop(root, None)
    if held is not None:
        for registry, name in held.added:
            registry.remove(name)
        _drop(root)


def _drop(root: str) -> None:
    for name in [name for name in sys.modules if name == root or name.startswith(f"{root}.")]:
        del sys.modules[name]


def _path(name: str, folder: Path) -> Path | None:
    root = name.partition(".")[0]
    places = (folder / f"{root}.py", folder / root / "__init__.py")
    return next((place for place in places if place.is_file()), None)


def _relative(path: Path) -> str:
    return f"{path.parent.name}/{path.name}" if path.name == "__init__.py" else path.name


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """A module's file, or all Python files of a package, by their names relative to its folder."""
    if path.name != "__init__.py":
        yield path.name, path.read_bytes()
        return
    total = 0
    for file in sorted(path.parent.rglob("*.py")):
        content = file.read_bytes()
        total += len(content)
        if total > PACKAGE_BYTES_MAX:
            raise FileError(
                str(path.parent), f"has more than {PACKAGE_BYTES_MAX:,} octets of Python, the most allowed"
            )
        yield f"{path.parent.name}/{file.relative_to(path.parent).as_posix()}", content


def _installed(module: str) -> Iterator[tuple[str, bytes]]:
    """The files of a module that is imported from where modules are installed; none of a built-in one."""
    root = sys.modules.get(module.partition(".")[0])
    file = Path(getattr(root, "__file__", None) or "")
    return _files(file) if file.suffix == ".py" and file.is_file() else iter(())


_folders: dict[Sequence[tuple[str, bytes]], Path] = {}


def _unpacked(shipped: Shipment, plugin: Plugin) -> Path:
    """A folder with the files of one plug-in, made once and removed with this process, if not before."""
    if plugin.files not in _folders or not _folders[plugin.files].is_dir():
        import shutil  # here, because no node needs them
        import tempfile

        folder = Path(tempfile.mkdtemp(prefix="roamcast-modules-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        shipped._replace(plugins=(plugin,)).write(folder)
        _folders[plugin.files] = folder
    return _folders[plugin.files]
