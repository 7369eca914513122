"""The examples of `docs/use/xml.md` are what they say."""

import re
from pathlib import Path

import pytest

from roamcast.errors import FilterError
from roamcast.filter import Filter
from roamcast.xml import Schema, load_document, read, write

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "use" / "xml.md").read_text()
FORUM = Schema.load(ROOT / "examples" / "golf" / "forum.xsd")


def table(heading: str, column: int) -> list[str]:
    """The code in one column of the table that has this heading."""
    rows = TEXT.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = [re.split(r"(?<!\\)\|", row)[column + 1].strip() for row in rows]
    return [cell.strip("`").replace("\\|", "|") for cell in cells]


ALLOWED, REFUSED = table("form | example", 1), table("refused | why, or what to write", 0)


def test_the_tables_are_found() -> None:
    assert len(ALLOWED) == 12 and len(REFUSED) == 13


@pytest.mark.parametrize("xpath", ALLOWED)
def test_what_the_page_allows_is_allowed(xpath: str) -> None:
    assert Filter.xpath(xpath, FORUM) != Filter.sql("FALSE")


@pytest.mark.parametrize("xpath", REFUSED)
def test_what_the_page_refuses_is_refused(xpath: str) -> None:
    with pytest.raises(FilterError):
        Filter.xpath(xpath, FORUM)
    with pytest.raises(FilterError):
        Filter.xpath(xpath)


def test_the_first_example() -> None:
    content = read(load_document(ROOT / "examples" / "golf" / "woods-at-15.xml"), FORUM)
    assert (content.type, content.attributes["@id"], content.attributes["hole"]) == ("PGMFORUM", "001", 15)
    wanted = Filter.xpath("/PGMFORUM[player = 'woods' and hole > 10]", FORUM)
    assert f"str(wanted)  # {wanted}\n" in TEXT
    call = re.search(r"^write\((.*), forum\)$", TEXT, re.MULTILINE)
    assert call is not None
    type_, attributes = eval(call[1])
    assert read(write(type_, attributes, FORUM), FORUM).attributes == attributes


def test_the_refusal_that_is_shown() -> None:
    with pytest.raises(FilterError) as caught:
        Filter.xpath("/PGMFORUM[plyer = 'woods']", FORUM)
    shown = re.search(r"^/PGMFORUM\[plyer.*$", TEXT, re.MULTILINE)
    assert shown is not None and str(caught.value).startswith(shown[0].removesuffix("…"))
