"""HTML by hand: text is escaped unless it is already `Markup`.

Names of scenarios, strategies and errors come from files that others wrote; no page trusts them.
"""

import html
import unicodedata
from collections.abc import Iterable, Sequence

from roamcast.pages import policy


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """Any value as HTML text."""
    return value if isinstance(value, Markup) else Markup(html.escape(visible(str(value)), quote=True))


def visible(text: str) -> str:
    """Replaces control characters by a visible sign: HTML and SVG cannot hold them, or they hide text."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c)[0] == "C" and c not in "\n\t" else c
        for c in text
    )


def element(name: str, *content: object, **attributes: object) -> Markup:
    """`element("p", "text", class_="note")`; an attribute's trailing underscore is dropped, others are
    hyphens."""
    opened = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{opened}>{''.join(escaped(part) for part in content)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    return Markup("\n".join(escaped(part) for part in parts))


def table(heads: Sequence[object], rows: Iterable[Sequence[object]], texts: int, caption: str = "") -> Markup:
    """A table whose first `texts` columns are words and whose others are numbers."""

    def cells(tag: str, values: Sequence[object]) -> Markup:
        made = [
            element(tag, value) if index < texts else element(tag, value, class_="number")
            for index, value in enumerate(values)
        ]
        return element("tr", *made)

    parts = [
        element("caption", caption) if caption else "",
        element("thead", cells("th", heads)),
        element("tbody", Markup("\n" + "\n".join(cells("td", row) for row in rows) + "\n")),
    ]
    return element("div", element("table", *parts), class_="wide")


def folded(title: str, *content: object) -> Markup:
    return element("details", element("summary", title), *content)


def section(title: str, *content: object, anchor: str = "") -> Markup:
    head = element("h2", title, id=anchor) if anchor else element("h2", title)
    return Markup(f"<section>\n{head}\n{joined(content)}\n</section>")


def page(title: str, *content: object, script: str = "", data: str = "") -> str:
    """A whole document that needs nothing from outside. `data`: JSON for the script, in an element of its
    own."""
    safe = data.replace("<", "\\u003c")  # no text in it can end the element
    after = f'<script type="application/json" id="data">{safe}</script>\n'
    after += f'<script type="module">{script}</script>\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy([script]))}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{joined(content)}\n</main>\n{after if script else ''}</body>\n</html>\n"
    )


STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1b1f24; --faint: #5b6470; --line: #d6dae0; --band: #f4f6f8;
  --good: #00664a; --bad: #a33b00; --accent: #005a8f;
  --series-0: #0072b2; --series-1: #d55e00; --series-2: #00805d; --series-3: #b0518b;
  --series-4: #b57a00; --series-5: #3a8fc4; --series-6: #6b6b6b; --series-7: #7a4fbf;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #e6e9ed; --faint: #9aa4b0; --line: #363c44; --band: #1d2126;
    --good: #4fc79e; --bad: #ff9b66; --accent: #6fbdf0;
    --series-0: #56b4e9; --series-1: #ff8a3d; --series-2: #2fc79a; --series-3: #e59ac4;
    --series-4: #f0b93a; --series-5: #9fd4f5; --series-6: #b5b5b5; --series-7: #b79bf0;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 78rem; margin: 0 auto; padding: 2rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-bottom: .3rem; border-bottom: 2px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .5rem 0; max-width: 54rem; }
.lead, .note, figcaption, caption { color: var(--faint); }
.note, figcaption, caption { font-size: .875rem; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .86em; }
pre { background: var(--band); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem;
  overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--band); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem 1rem; min-width: 7rem; }
.tiles b { display: block; font-size: 1.5rem; line-height: 1.2; font-weight: 650; }
.tiles span { color: var(--faint); font-size: .85rem; }
.wide { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .2rem 0 .4rem; }
th, td { padding: .3rem .55rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; vertical-align: bottom; border-bottom: 2px solid var(--line); }
th small { display: block; font-weight: 400; color: var(--faint); }
td.number, th.number { text-align: right; white-space: nowrap; }
th.number { white-space: normal; }
tbody tr:nth-child(even) { background: var(--band); }
.whole { white-space: nowrap; }
.words { max-width: 30rem; overflow-wrap: anywhere; }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
details { margin: .8rem 0; border: 1px solid var(--line); border-radius: 6px; padding: .4rem .9rem; }
summary { cursor: pointer; color: var(--accent); font-weight: 550; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1.2rem; }
.plots .panels { grid-column: 1 / -1; }
figure { margin: 0; min-width: 0; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { margin-top: .2rem; }
.chart { position: relative; }
.chart svg { touch-action: pan-y; cursor: crosshair; font: 11px system-ui, sans-serif; color: var(--ink); }
.chart .tip { position: absolute; pointer-events: none; background: var(--paper); border: 1px solid
var(--line);
  border-radius: 5px; padding: .15rem .5rem; font-size: .8rem; white-space: nowrap; box-shadow: 0 1px 4px
  #0003; z-index: 2; }
.chart .tools { display: flex; flex-wrap: wrap; gap: .2rem .5rem; align-items: center; font-size: .8rem; }
.chart button { font: inherit; color: inherit; background: none; border: 1px solid transparent;
border-radius: 4px;
  padding: 0 .3rem; cursor: pointer; }
.chart button:hover { border-color: var(--line); }
.chart button[aria-pressed=false] { opacity: .35; text-decoration: line-through; }
.chart .export { margin-left: auto; color: var(--accent); }
.chart svg.mark { width: 1.7rem; height: .8rem; display: inline-block; vertical-align: -.05rem;
margin-right: .2rem; }
.verdict { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap:
1.5rem; align-items: start; }
.verdict p:first-of-type { font-size: 1.15rem; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; margin: .4rem 0 .8rem; padding: 0;
  list-style: none; }
.key svg { width: 2.6rem; height: .9rem; vertical-align: -.1rem; margin-right: .4rem; }
nav { font-size: .92rem; margin: .8rem 0; }
nav a { color: var(--accent); margin-right: 1.1rem; }
a { color: var(--accent); }
@media print {
  :root { --paper: #ffffff; --ink: #000000; --faint: #444444; --line: #bbbbbb; --band: #f4f4f4; }
  main { max-width: none; padding: 0; }
  body { font-size: 10.5pt; }
  nav { display: none; }
  details::details-content { content-visibility: visible; block-size: auto; }
  figure, tr, .tiles li { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .wide { overflow: visible; }
  th, td { padding: .2rem .45rem; font-size: 8.5pt; }
  .plots { grid-template-columns: 1fr 1fr; }
}
"""
