"""The commands. Each reads its arguments, calls one function that a test can call too, prints the answer.

`group` finds the commands and turns errors into exit codes; `node` has what a device needs, `run` one run
of a scenario and what a file can name, `study` the work on many runs and on recordings. Their modules
import little more than click at the top: a command loads what it needs when it runs, so `roamcast --help`
answers at once and a device never loads the laboratory.
"""

from roamcast.cli.group import app, main

__all__ = ["app", "main"]
