"""`python -m roamcast` is the command `roamcast`."""

from roamcast.cli import main

main()
