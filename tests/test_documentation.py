"""The pages of `docs/` lead somewhere: links, anchors, paths, modules and class names in them exist.

What needs no site builder is checked here; `make docs` builds the site and fails on the rest.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from roamcast import __version__

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "roamcast"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
LINKED = [*TEXTS, ROOT / "ARTIFACT.md", ROOT / "CHANGELOG.md"]

# The package that a page's bare file names belong to.
ABOUT = {
    "develop/writing-a-strategy.md": "examples/gossip",
    "protocols/adaptors.md": "src/roamcast/strategy/opportunistic",
    "protocols/chapar.md": "src/roamcast/strategy/chapar",
    "protocols/directed.md": "src/roamcast/strategy/directed",
    "protocols/epidemic.md": "src/roamcast/strategy",
    "protocols/odmrp-summaries.md": "src/roamcast/strategy/odmrp",
    "protocols/odmrp.md": "src/roamcast/strategy/odmrp",
    "protocols/olsr.md": "src/roamcast/underlay/olsr",
    "protocols/opportunistic.md": "src/roamcast/strategy/opportunistic",
    "protocols/tree-routing.md": "src/roamcast/strategy/tree",
    "protocols/tree.md": "src/roamcast/strategy/tree",
    "study/performance.md": "benchmarks",
}
# Of the Eclipse Paho test suite, of olsrd, of Spark, and of whoever follows a page.
FOREIGN = {
    "interoperability/client_test.py",
    "client_test5.py",
    "test_gossip.py",
    "Test",
    "LinkQualityLevel",
    "QuotedIdentifiers",
}

KINDS = ["Added", "Changed", "Deprecated", "Fixed", "Removed", "Security"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"\s*(?:[-*]|\d+\.) |\|")
CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
PYTHON_FILE = re.compile(r"[\w./-]*\w\.py\b")
FOLDER = re.compile(r"(?:src|tests|benchmarks|examples|tools|docs)/[\w/.-]*")
DOTTED = re.compile(r"(?<!/)\broamcast(?:\.\w+)+")
CLASS_NAME = re.compile(r"\b[A-Z]\w*[a-z]\w*[A-Z]\w*")  # two capitals: `TreeLink`, not `Link` or `FMT`
ONE_CLASS = re.compile(
    r"^([A-Z][a-z]\w*)(?:\.\w+)?(?:\(.*\))?$"
)  # the whole code: `Attach`, `Node.publish(…)`


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: nothing there"
        if page in PAGES:
            assert target.is_relative_to(DOCS), f"{link}: outside docs/, the site cannot show it"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading; there are {sorted(anchors(target))}"


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_and_folder_that_a_page_names_exists(page: Path) -> None:
    homes = [ROOT, SOURCE, ROOT / ABOUT.get(page.relative_to(DOCS).as_posix() if page in PAGES else "", "")]
    for code in CODE.findall(prose(page)):
        for name in {*PYTHON_FILE.findall(code), *FOLDER.findall(code)} - FOREIGN:
            assert any((home / name).exists() for home in homes), f"`{name}` is not in {homes}"


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_and_class_that_a_page_names_exists(page: Path) -> None:
    for name in DOTTED.findall(page.read_text(encoding="utf-8")):
        assert is_in_the_source(name), f"{name}: no such module or name"
    for code in CODE.findall(prose(page)):
        for name in {*CLASS_NAME.findall(code), *ONE_CLASS.findall(code)} - FOREIGN:
            assert name in words_of_the_source(), f"`{name}` occurs nowhere in src/"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_and_tables_begin_after_an_empty_line(page: Path) -> None:
    """Otherwise the site shows them as a paragraph, though other renderers do not."""
    for paragraph in prose(page).split("\n\n"):
        lines = [line for line in paragraph.strip("\n").split("\n") if not line.startswith("#")]
        if lines and not BLOCK.match(lines[0]):
            assert not any(BLOCK.match(line) for line in lines), paragraph


def test_the_navigation_of_the_site_has_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"[\w/-]+\.md", navigation)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


def test_the_changelog_keeps_its_form() -> None:
    """Keep a Changelog: sections by kind under each release, one line per change."""
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert releases[0].startswith("Unreleased\n")
    for release in releases:
        kinds = re.findall(r"^### (.+)$", release, re.MULTILINE)
        assert kinds and kinds == [kind for kind in KINDS if kind in kinds], release.splitlines()[0]
        for line in release.split("### ", 1)[1].splitlines():
            assert not line.startswith(" "), f"one line per change: {line}"


def test_a_page_that_picks_a_test_by_a_word_finds_one() -> None:
    picked = [
        (path, word)
        for page in LINKED
        for path, word in re.findall(r"pytest (tests/\S+\.py) -k (\w+)", page.read_text(encoding="utf-8"))
    ]
    assert len(picked) > 1
    for path, word in picked:
        assert re.search(rf"def test_\w*{word}", (ROOT / path).read_text(encoding="utf-8")), (path, word)


def test_wheels_are_named_by_the_version_of_now() -> None:
    named = re.findall(r"roamcast-([\d.]+)-py3", (DOCS / "use" / "install.md").read_text(encoding="utf-8"))
    assert set(named) == {__version__}


def test_the_citation_has_what_its_format_requires_and_the_version_of_now() -> None:
    """Citation File Format 1.2.0: four keys are required; an author is a person or, by `name`, an entity."""
    keys = dict(re.findall(r"^([a-z-]+): *(.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert {"cff-version", "message", "title", "authors"} <= set(keys)
    assert (keys["cff-version"], keys["version"], keys["license"]) == ("1.2.0", __version__, "Apache-2.0")
    assert re.search(
        r"^authors:\n  - (?:name|family-names): ", (ROOT / "CITATION.cff").read_text(), re.MULTILINE
    )


# Published figures beside ours stand on the page that `roamcast reproduce` writes, and nowhere else.

RESULTS = DOCS / "protocols" / "results.md"
PROTOCOLS = [page for page in sorted((DOCS / "protocols").glob("*.md")) if page != RESULTS]
THEIRS = re.compile(r"\b(published|the (?:paper|work)(?:['’]s)?)\b", re.IGNORECASE)
OURS = re.compile(r"\bours\b", re.IGNORECASE)
MEASURED = re.compile(r"\d\s?(?:%|ms\b|s\b|hops?\b|kbit/s|times\b|a second\b|MB\b)")
OF_RUNS = re.compile(
    r"(?<!-)\bseeds,? (?:from )?\d+|\|\s*before\s*\|[^\n]*\bnow\b|\bnow, [\d.,]+ (?:s |ms )?before\b",
    re.IGNORECASE,
)
WORKS = "chapar.md", "odmrp.md", "opportunistic.md", "tree.md"
BESIDE = re.compile(r"\([^()]*\d[^()]*\bthere\)")  # `340 ms (598 there)`


def figures_beside_published_ones(text: str) -> list[str]:
    """Tables with a column of theirs and one of ours; sentences with two measurements that name both, or
    theirs in brackets; tables of numbers below a paragraph about `roamcast reproduce`."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    found = []
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE):
        lines = section.splitlines()
        for at, line in enumerate(lines[1:], 1):
            if re.match(r"^\|[\s:|-]+\|$", line):
                cells = [cell.strip() for cell in lines[at - 1].strip("|").split("|")]
                rows = "\n".join(lines[at + 1 :]).split("\n\n")[0]
                before = "\n".join(lines[: at - 1]).strip().split("\n\n")[-1]
                of_reproduce = "roamcast reproduce" in before and len(re.findall(r"\d\.\d", rows)) > 1
                if of_reproduce or (any(map(THEIRS.match, cells)) and any(map(OURS.match, cells))):
                    found.append(lines[at - 1])
        words = "\n".join("" if line.startswith("|") else line for line in lines)
        for sentence in re.split(r"(?<=[.;:])\s+|\n\s*\n|\n- ", words):
            both = THEIRS.search(sentence) and OURS.search(sentence)
            if (both and len(MEASURED.findall(sentence)) > 1) or BESIDE.search(sentence):
                found.append(" ".join(sentence.split()))
    return found


def results_of_runs(text: str) -> list[str]:
    """Paragraphs and tables with measurements of runs: they name seeds, or compare `before` with `now`."""
    return [
        " ".join(paragraph.split())
        for paragraph in CODE_BLOCK.sub("", text).split("\n\n")
        if OF_RUNS.search(paragraph)
        and re.search(r"\d\.\d|\d\s?%|\d\s?m?s\b|\d,\d{3}", OF_RUNS.sub("", paragraph))
    ]


@pytest.mark.parametrize("page", PROTOCOLS, ids=lambda page: page.name)
def test_a_page_of_a_protocol_carries_no_figures_beside_published_ones(page: Path) -> None:
    assert figures_beside_published_ones(page.read_text()) == [], "they belong on protocols/results.md"
    assert results_of_runs(page.read_text()) == [], "they belong on a page that a tool writes, or into git"


@pytest.mark.parametrize("name", WORKS)
def test_a_page_of_a_work_links_to_the_results(name: str) -> None:
    assert "(results.md" in (DOCS / "protocols" / name).read_text()


def test_results_of_runs_are_found_and_others_are_not() -> None:
    for text in (
        "| | before | now |\n|---|---|---|\n| walking | 0.987 | 0.998 |",
        "Ten seeds, 201 to 210: delivery 0.998.",
        "Seeds 1 to 3: new events cross after 1.6 s.",
        "It takes 40 ms now, 800 before.",
    ):
        assert results_of_runs(text), text
    for text in (
        "| option | default |\n|---|---|\n| `jitter` | 0.02 s |",
        "A seed in every failure message, and `--seeds 3` of 0.5 s each.",
        "An event that came before the subscription waits 0.5 s.",
        "| R6 | a link has a number | `[R6]`, seed 76 |",
    ):
        assert not results_of_runs(text), text


def test_figures_beside_published_ones_are_found_and_others_are_not() -> None:
    for text in (
        "| figure | the paper | ours |\n|---|---|---|\n| 7 | 4.17 | 3.25 |\n",
        "Ours takes 340 ms, the work’s 598 ms.",
        "Reconnecting takes 340 ms (598 there).",
        "`roamcast reproduce odmrp` runs it.\n\n| | delivery |\n|---|---|\n| a | 0.95 |\n| b | 0.92 |\n",
    ):
        assert figures_beside_published_ones(text), text
    for text in (
        "The paper has 30 s, the default is 10 s.",
        "`roamcast reproduce odmrp` runs it.\n\n| option | meaning |\n|---|---|\n| a | 5 s |\n",
        "| option | default |\n|---|---|\n| a | 0.5 |\n| b | 0.25 |\n",
        "Ours asks once a second, as the paper says.",
    ):
        assert not figures_beside_published_ones(text), text


def test_the_counts_by_work_are_those_of_the_results() -> None:
    readme = (ROOT / "README.md").read_text()
    counts = re.search(r"<!-- reproduction: begin.*?-->\n(.*?)<!-- reproduction: end -->", readme, re.DOTALL)
    assert counts is not None and counts[1] and counts[1] in RESULTS.read_text()


def prose(page: Path) -> str:
    return CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """The headings of a page as the site names them (Python-Markdown's `slugify`)."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", LINK.sub("", heading)).strip().lower()
        slug = re.sub(r"[-\s]+", "-", plain)
        number = 0
        while (unique := f"{slug}_{number}" if number else slug) in found:
            number += 1
        found.add(unique)
    return found


def is_in_the_source(dotted: str) -> bool:
    """Whether `roamcast.a.b.name` is a module, a word of the module that its first parts name, or a text."""
    if any(dotted in text for text in sources()):
        return True  # an event type, an attribute, a file's name
    place, parts = SOURCE, dotted.split(".")[1:]
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if not parts:
        return True
    if (place / f"{parts[0]}.py").is_file():
        place /= f"{parts.pop(0)}.py"
    else:
        place /= "__init__.py"
    return not parts or re.search(rf"\b{parts[0]}\b", place.read_text(encoding="utf-8")) is not None


@cache
def words_of_the_source() -> set[str]:
    return {word for text in sources() for word in re.findall(r"\w+", text)}


@cache
def sources() -> list[str]:
    return [path.read_text(encoding="utf-8") for end in ("py", "js") for path in SOURCE.rglob(f"*.{end}")]
