"""The ideal radio: who is in range receives, in the same instant. Only random loss can be added."""

from mypy_extensions import mypyc_attr

from roamcast.runtime.sim.medium import Job, Medium
from roamcast.trace import DropReason
from roamcast.units import NodeId


@mypyc_attr(allow_interpreted_subclasses=True)  # the emulator's carry frames, those of tests listen in
class IdealMedium(Medium):
    def send(self, job: Job) -> None:
        self._engine.at(self._engine.now, self._arrive, job)

    def forget(self, node: NodeId) -> None:
        """Nothing is ever queued."""

    def _arrive(self, job: Job) -> None:
        links = self._links
        if not links.alive >> job.sender & 1:
            self._give_up(job, DropReason.CRASHED)
            return
        in_range = links.reach[job.sender]
        if job.to is not None:
            in_range &= 1 << job.to
        received = self._without_losses(in_range)
        self._record(job, self._engine.now, 0, received, 0, in_range & ~received)
        if job.to is not None and not received:
            self._give_up(job, DropReason.RETRIES if in_range else DropReason.NOT_IN_RANGE)
        self._hand_up(job, received)
