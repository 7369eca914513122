"""docs/use/modulators.md says what the code does."""

import re
from pathlib import Path

from roamcast.event import Event
from roamcast.modulator import MODULATORS, Content, ModulatorSpec, make
from roamcast.modulator.base import PARAMETER_BYTES_MAX, STATE_BYTES_MAX

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "modulators.md").read_text(encoding="utf-8")


def test_the_example_keeps_its_state_when_it_moves() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    if "rise" not in MODULATORS.names():
        exec(block, {})
    spec = ModulatorSpec.of("rise", {"attribute": "level"})
    here, there = make(spec), make(spec)
    assert here.process(Event(1, 1, {"level": 3})) == Content({"rise": 3.0}, b"", "", "")
    there.restore(here.state())
    assert there.process(Event(1, 2, {"level": 5})) == Content({"rise": 2.0}, b"", "", "")


def test_names_parameters_and_bounds() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    assert set(rows) == {"condition", "projection", "bounding_box", "aggregate"}
    for name, parameters in rows.items():
        assert re.findall(r"`(\w+)`", parameters) == list(MODULATORS.options_type(name).__struct_fields__)
    assert f"{STATE_BYTES_MAX:,}" in PAGE and f"{PARAMETER_BYTES_MAX:,}" in PAGE
