"""The topics of an event hub: those of its open streams, and of streams that have just ended.

A client whose connection breaks comes back within seconds. What happens until then becomes frames
as well, although no stream has the topic.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection

LEFT_MAX = 256  # ended streams whose topics go on; those of the earlier ones end
JOB, SCHEDULE = "job:", "schedule:"  # topics of one job or schedule, before its id


class FollowedTopics:
    """Counts the streams of each topic, and knows since when a topic has been followed."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._left: deque[tuple[float, Collection[str]]] = deque()  # when a stream ended
        self._broken: dict[str, int] = {}  # by kind, the number of the last frame at a pause
        self.jobs: set[int] = set()
        self.schedules: set[int] = set()

    def __contains__(self, topic: str) -> bool:
        return topic in self._counts

    def add(self, topics: Collection[str]) -> None:
        """Follow the topics of a new stream."""
        self._counts.update(topics)
        self._watch()

    def leave(self, topics: Collection[str], now: float) -> None:
        """Note when a stream has ended; its topics go on until `end_old` ends them."""
        self._left.append((now, topics))

    def end_old(self, before: float, newest: int) -> bool:
        """End the topics of streams that ended before this; return whether any has no other.

        newest: the number of the last frame; a client with an earlier one may have missed some.
        """
        counts = self._counts
        ended: set[str] = set()
        while self._left and (self._left[0][0] <= before or len(self._left) > LEFT_MAX):
            _, topics = self._left.popleft()
            counts.subtract(topics)
            ended.update(topic for topic in topics if not counts[topic])
        if not ended:
            return False
        for topic in ended:
            del counts[topic]
            self._broken[_kind(topic)] = newest
        self._watch()
        return True

    def clear(self) -> None:
        """Follow nothing any more."""
        self._counts.clear()
        self._left.clear()
        self._watch()

    def have_gone_on(self, topics: Collection[str], number: int) -> bool:
        """Return whether these topics have been followed since the frame of this number."""
        return all(self._broken.get(_kind(topic), -1) < number for topic in topics)

    def _watch(self) -> None:
        self.jobs = {int(t.removeprefix(JOB)) for t in self._counts if t.startswith(JOB)}
        self.schedules = {
            int(t.removeprefix(SCHEDULE)) for t in self._counts if t.startswith(SCHEDULE)
        }


def _kind(topic: str) -> str:
    return topic.partition(":")[0]
