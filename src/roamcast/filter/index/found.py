"""The matches of one search, and their final order."""

from typing import TYPE_CHECKING, Any

from roamcast.filter.index.conjunction import Conjunction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SORTED_BY_NUMPY_MIN = 200  # fewer are sorted in less than numpy's fixed cost


class MatchesFound:
    """Single matches from tests, many at once from bitmaps; a subscription can be found several times."""

    __slots__ = ("_few", "_many")

    def __init__(self) -> None:
        self._few: dict[int, Any] = {}
        self._many: list[tuple[NDArray[np.int64], NDArray[np.object_]]] = []

    def add(self, conjunction: Conjunction) -> None:
        self._few[conjunction.sequence] = conjunction.key

    def add_many(self, sequences: "NDArray[np.int64]", keys: "NDArray[np.object_]") -> None:
        self._many.append((sequences, keys))

    def keys(self) -> list[Any]:
        """Each key once, in the order of sequence numbers."""
        few = self._few
        if sum(len(sequences) for sequences, _ in self._many) < SORTED_BY_NUMPY_MIN:
            for sequences, keys in self._many:
                few.update(zip(sequences.tolist(), keys.tolist(), strict=True))
            return [few[sequence] for sequence in sorted(few)]
        import numpy as np  # loaded already: only a bitmap finds many at once

        all_sequences = [np.fromiter(few, np.int64, len(few)), *(sequences for sequences, _ in self._many)]
        all_keys = [np.fromiter(few.values(), np.object_, len(few)), *(keys for _, keys in self._many)]
        _, first = np.unique(np.concatenate(all_sequences), return_index=True)
        in_order: list[Any] = np.concatenate(all_keys)[first].tolist()
        return in_order
