"""Scripts and styles of the pages that Roamcast makes, and how they become one file.

The scripts are ES modules with checked types (JSDoc; `tests/pages/`). Nothing is built: `bundle` puts modules
one after the other and takes out their imports, which name modules of this folder only. A server can as
well give them out one by one.

| file | is for |
|---|---|
| `map.js` | any map: nodes, links, walls, pan and zoom; colours |
| `unpack.js` `run.js` `timeline.js` `player.js` `player.css` | the player (`lab/play`) |
| `chart.js` `report.js` `report.css` | reports (`lab/report`) |
| `live/` | pages from a server: a node's own (`gateway/web`), a whole mesh (`roamcast watch --web`) |
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib.resources import files

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def asset(name: str) -> str:
    """The text of a file of this folder."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def live_files() -> dict[str, bytes]:
    """The files of the pages that a server gives out, by their path there."""
    root = files(__name__)
    found = {f"live/{entry.name}": entry.read_bytes() for entry in root.joinpath("live").iterdir()}
    return found | {"map.js": root.joinpath("map.js").read_bytes()}


def bundle(entry: str) -> str:
    """A module and all that it imports as one script, each module once, before its users."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in texts:
            return
        text = asset(name)
        texts[name] = ""  # its place is after its imports; an entry here ends cycles
        for imported in _IMPORT.findall(text):
            add(imported)
        del texts[name]
        texts[name] = _EXPORT.sub("", _IMPORT.sub("", text))

    add(entry)
    script = "\n".join(texts.values())
    assert "</script" not in script.lower() and "<!--" not in script, "it would end the page's own element"
    return script


def policy(scripts: Iterable[str]) -> str:
    """A content security policy for a self-contained page: these inline scripts, nothing from elsewhere."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
