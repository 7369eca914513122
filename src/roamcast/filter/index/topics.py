"""Topic filters in a tree of levels (MQTT 5.0, section 4.7), each with what it leads to."""

from typing import Generic, TypeVar

T = TypeVar("T")


class TopicTree(Generic[T]):
    """A mapping from topic filters, asked by topic. Wildcards are children like any other level."""

    def __init__(self) -> None:
        self._root: _Level[T] = _Level()

    def find(self, topic_filter: str) -> T | None:
        level: _Level[T] | None = self._root
        for name in topic_filter.split("/"):
            level = level.below.get(name) if level is not None else None
        return level.target if level is not None else None

    def put(self, topic_filter: str, target: T) -> None:
        level = self._root
        for name in topic_filter.split("/"):
            level = level.below.setdefault(name, _Level())
        level.target = target

    def remove(self, topic_filter: str) -> None:
        """Take out a filter that is there, and the levels that only it needed."""
        path = [self._root]
        names = topic_filter.split("/")
        for name in names:
            path.append(path[-1].below[name])
        path[-1].target = None
        for name, above, level in reversed(list(zip(names, path[:-1], path[1:], strict=True))):
            if level.below or level.target is not None:
                break
            del above.below[name]

    def __bool__(self) -> bool:
        return bool(self._root.below)

    def matching(self, topic: str) -> list[T]:
        """The targets of all filters that match; an event without a topic matches none."""
        if not topic:
            return []
        targets: list[T] = []
        reached = [self._root]
        wildcards = topic[0] != "$"  # a leading wildcard does not stand for `$SYS` and its like
        for name in topic.split("/"):
            deeper: list[_Level[T]] = []
            for level in reached:
                below = level.below
                if name != "+" and name != "#" and name in below:
                    deeper.append(below[name])
                if wildcards:
                    if "+" in below:
                        deeper.append(below["+"])
                    if "#" in below:
                        _collect(below["#"], targets)
            reached = deeper
            wildcards = True
        for level in reached:
            _collect(level, targets)
            if "#" in level.below:  # `sport/#` matches `sport`
                _collect(level.below["#"], targets)
        return targets


class _Level(Generic[T]):
    __slots__ = ("below", "target")

    def __init__(self) -> None:
        self.below: dict[str, _Level[T]] = {}
        self.target: T | None = None


def _collect(level: "_Level[T]", targets: list[T]) -> None:
    if level.target is not None:
        targets.append(level.target)
