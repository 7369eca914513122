"""Plain values as TOML text; `explain.py` reads it back."""

import json
from collections.abc import Mapping
from typing import Any


def tables_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of plain values."""
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key_text(key)} = {value_text(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key_text(key)} = {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, int | float):
        return repr(value)
    return key_text(value)


def key_text(text: str) -> str:
    """A JSON text is a TOML text, but for one character that only TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
