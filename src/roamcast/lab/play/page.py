"""The page: one file with the runs' content, the script and the style inside. It needs nothing else."""

from collections.abc import Sequence

from roamcast.lab.report.markup import Markup, element, escaped
from roamcast.pages import asset, bundle, policy

TOO_OLD = (
    "This page draws a run with JavaScript. If nothing else appears, the browser runs no scripts or is too "
    "old: Firefox 113, Chrome 80, Safari 16.4 or any newer one will do."
)


def render(title: str, contents: Sequence[str], start: str = "") -> str:
    """The document. `contents`: one text per run (`content.py`); `start`: what stands for the part after `#`
    of an address that has none."""
    script = bundle("player.js")
    runs = "\n".join(f'<script type="application/x-roamcast-run">{text}</script>' for text in contents)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy([script]))}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(title)}</title>\n<style>{asset('player.css')}</style>\n</head>\n"
        f'<body data-start="{escaped(start)}">\n'
        f"{element('p', TOO_OLD, id='old')}\n{Markup(runs)}\n"
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )
