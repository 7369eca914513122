"""Which format a file is in, from its name and its first two rows. Where two fit, the user is asked."""

from itertools import islice
from pathlib import Path

from roamcast.errors import FileError
from roamcast.world.formats.motion_tables import LINE_BYTES_MAX, is_tar
from roamcast.world.formats.text import damage_as_file_error, lines, opened

_BY_SUFFIX = {
    ".movements": "bonnmotion",
    ".ns_movements": "ns2",
    ".ns2": "ns2",
    ".tcl": "ns2",
    ".mob": "ns2",
    ".gpx": "gpx",
}
_XML_HEAD = 1 << 16  # octets; SUMO writes its whole configuration as a comment before the root


def motion_format(path: Path) -> str | None:
    if path.is_dir():
        kinds = [kind for kind, glob in (("gpx", "*.gpx"), ("cabs", "*.txt")) if any(path.glob(glob))]
        return kinds[0] if len(kinds) == 1 else None
    if is_tar(path):
        return "cabs"
    suffix = Path(path.name.removesuffix(".gz")).suffix
    return _BY_SUFFIX.get(suffix) or _motion_of(_first_rows(path))


def contacts_format(path: Path) -> str | None:
    if path.is_dir():
        return None
    rows = _first_rows(path)
    if not rows:
        # Comments only: it can be the plan of a network without any link.
        return "plan" if path.suffix == ".csv" else None
    fields = rows[0].split()
    if "," in rows[0]:
        return "plan" if len(rows[0].split(",")) == 4 else None
    if "CONN" in fields:
        return "one"
    if not _are_numbers(fields[:1]):
        return None
    return {3: "sociopatterns", 4: "haggle", 6: "haggle"}.get(len(fields))


def _motion_of(rows: list[str]) -> str | None:
    if not rows:
        return None
    first = rows[0]
    if first.startswith("$"):
        return "ns2"
    if first.startswith("<"):
        kinds = [kind for kind, root in (("fcd", "<fcd-export"), ("gpx", "<gpx")) if root in first]
        return kinds[0] if len(kinds) == 1 else None
    if "," in first:
        return "csv" if {"node", "time"} <= {name.strip().lower() for name in first.split(",")} else None
    widths = [len(row.split()) for row in rows[:2]]
    if not all(_are_numbers(row.split()) for row in rows[:1]):
        return None
    if widths[0] in (6, 8) and widths[1:] in ([4], [5]):
        return "one"
    if all(width % 3 == 0 for width in widths) and (len(widths) == 2 or widths[0] > 6):
        return "bonnmotion"
    if widths == [4] * len(widths) and first.split()[2] in ("0", "1"):
        return "cabs"
    return None


def _first_rows(path: Path) -> list[str]:
    """The first two rows that are no comments; of an XML file the part that should contain its root."""
    with opened(path) as stream:
        with damage_as_file_error(str(path)):
            head = stream.read(_XML_HEAD).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
            stream.seek(0)
        if head.startswith("<"):
            return [head]
        text = lines(stream, str(path), bytes_max=LINE_BYTES_MAX)
        rows = (line.strip() for line in text)
        return list(islice((row for row in rows if row and not row.startswith("#")), 2))


def _are_numbers(fields: list[str]) -> bool:
    try:
        return all(abs(float(field)) >= 0 for field in fields)
    except ValueError:
        return False


def refusal(path: Path, known: list[str]) -> FileError:
    return FileError(
        str(path),
        f"is in no format that can be told from its name and first rows; state one of {', '.join(known)}",
    )
