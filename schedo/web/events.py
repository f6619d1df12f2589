"""The event streams of one server: frames that are rendered once, and a place in them per stream.

While there is a stream, the hub gathers what the commits change, and renders it a few times a
second into frames of a ring. A stream has no buffer of its own: it remembers the last frame that it
has sent, and takes the next ones when its client has read those before. A client that is too slow
finds a gap. So memory is bounded by the ring, whatever the clients do, and the cost does not depend
on the number of jobs.

An id is the engine's epoch and the frame's number. A client that comes back with the id of a frame
that the ring does not follow gets a `reset`: it must read everything again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from schedo.core.changes import Changes
from schedo.core.model import Job, Queue
from schedo.core.worker_messages import ProgressLine, WorkerStatus
from schedo.engine.call_results import QueueStatus
from schedo.engine.engine import Engine
from schedo.engine.sharing import loop_share
from schedo.engine.summary import RUNS_MAX, WORKERS_MAX
from schedo.errors import Unavailable
from schedo.protocol import events
from schedo.web.event_topics import JOB, SCHEDULE, FollowedTopics
from schedo.web.light_event import LightEvent

log = logging.getLogger("schedo.web")

STREAMS_MAX = 256
FRAMES_MAX = 4_096
FRAMES_BYTES_MAX = 2_000_000
STREAM_BYTES_MAX = 65_536  # a client that is further behind finds a gap
FRAME_S = 0.5  # between two looks at what has changed; a tick comes with every second one
LINGER_S = 30.0  # the topics of a stream go on for so long, because clients connect again
COMMENT_S = 15.0


Records = dict[int, dict[str, Any]]  # the data of jobs or schedules, by id
Seen = tuple[WorkerStatus, dict[str, int]]  # with the number of its running jobs by task
Second = tuple[dict[str, Any], Sequence[QueueStatus]]


class Frame(NamedTuple):
    """An event, and who gets it: the streams with its topic."""

    number: int
    topic: str
    data: bytes


class Gathered:
    """What has changed since the last frames, as data: the core uses its records again."""

    def __init__(self) -> None:
        self.jobs: Records = {}
        self.states: Counter[str] = Counter()  # of the changes of jobs, as many as there are
        self.watched: Records = {}  # jobs
        self.runs: dict[int, Records] = {}  # of watched schedules, by schedule
        self.schedules: Records = {}
        self.deleted = 0  # schedules
        self.queues: dict[str, Queue] = {}

    def add_jobs(self, jobs: Mapping[int, Job]) -> None:
        """Add changed jobs: their data, or only their states if there are too many."""
        self.states.update(job.state.value for job in jobs.values())
        if self.states.total() <= events.RECORDS_MAX:
            self.jobs.update((ident, events.job_data(job)) for ident, job in jobs.items())

    def add_run(self, schedule_id: int, run: Job) -> None:
        """Add a changed run of a watched schedule; of too many, only the first."""
        runs = self.runs.setdefault(schedule_id, {})
        if run.id in runs or len(runs) < events.RECORDS_MAX:
            runs[run.id] = events.job_data(run)


class EventHub:
    """All event streams of one server."""

    def __init__(self, engine: Engine, read_second: Callable[[], Second], newest: int = 0) -> None:
        """read_second: returns the data of the event of each second, and queues with counts.

        newest: a number above those of the frames of the hub before, if there was one.
        """
        self._engine = engine
        self._read_second = read_second
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self.epoch = 0
        self.newest = newest  # the number of the last frame
        self._first = newest + 1  # the number of the oldest frame that is kept, or the next one
        self._gathered = Gathered()
        self._workers: dict[str, Seen] = {}
        self._queues: dict[str, tuple[Queue, int, Mapping[str, int]]] = {}
        self._topics = FollowedTopics()
        self._progress: dict[int, ProgressLine] = {}  # the last one of each watched job
        self.streams = 0
        self._changed = LightEvent()
        self._task: asyncio.Task[None] | None = None
        self.is_closed = False

    # Streams.

    def open(self, topics: Collection[str], last_id: str | None) -> Stream:
        """Return a new stream; raise Unavailable if there are too many, or the server stops."""
        if self.is_closed:
            raise Unavailable("the server is stopping")
        if self.streams >= STREAMS_MAX:
            raise Unavailable(f"there are {STREAMS_MAX} event streams already; read /v1/summary")
        if self._task is None:
            self._begin()
        self.streams += 1
        self._topics.add(topics)
        return Stream(self, topics, last_id)

    def forget(self, topics: Collection[str]) -> None:
        """Forget a stream."""
        self.streams -= 1
        self._topics.leave(topics, asyncio.get_running_loop().time())

    def close(self) -> None:
        """End all streams: the server shuts down."""
        self.is_closed = True
        if self._task is not None:
            self._task.cancel()
            self._end()
        self._wake_streams()

    def ident(self, number: int) -> str:
        """Return the id of a frame."""
        return f"{self.epoch}-{number}"

    def find(self, last_id: str, topics: Collection[str]) -> int | None:
        """Return the number of a frame that others of the topics can follow, or None."""
        epoch, _, number = last_id.partition("-")
        if not self.epoch:
            return None  # during an outage of the store, all servers number their frames alike
        if epoch != str(self.epoch) or not (number.isascii() and number.isdigit()):
            return None
        if len(number) >= 18 or not self.follows(int(number)):
            return None
        return int(number) if self._topics.have_gone_on(topics, int(number)) else None

    def follows(self, number: int) -> bool:
        """Whether the ring has all frames after this one."""
        return self._first - 1 <= number <= self.newest

    def frames_after(self, number: int, topics: Collection[str]) -> list[bytes]:
        """Return the frames after this one for the topics, oldest first."""
        found = []
        for frame in reversed(self._frames):
            if frame.number <= number:
                break
            if frame.topic in topics:
                found.append(frame.data)
        return found[::-1]

    async def changed(self) -> None:
        """Wait for a look at what has changed, and then for a turn of the loop with room."""
        await self._changed.wait()
        await loop_share().admitted()

    # Frames.

    def _begin(self) -> None:
        self.epoch = self._engine.health().epoch
        self._gathered = Gathered()
        self._workers = self._read_workers()
        self._queues = {}
        self._engine.metrics.listeners.append(self._note)
        self._task = asyncio.create_task(self._run(), name="schedo events")

    def _end(self) -> None:
        """Gather nothing any more. What happens from now on is in no frame."""
        self._engine.metrics.listeners.remove(self._note)
        self._task = None
        self._topics.clear()
        self._drop_all()

    def _drop_all(self) -> None:
        self._frames.clear()
        self._bytes = 0
        self.newest += 1
        self._first = self.newest + 1

    def _note(self, changes: Changes) -> None:
        """Gather what a commit has changed; an error here must not fail the commit."""
        try:
            self._gather(changes)
        except Exception:
            log.exception("changes are missing in events after an internal error")

    def _gather(self, changes: Changes) -> None:
        gathered, jobs = self._gathered, changes.jobs
        if "jobs" in self._topics:
            gathered.add_jobs(jobs)
        for ident in self._topics.jobs & jobs.keys():
            gathered.watched[ident] = events.job_data(jobs[ident])
        if self._topics.schedules:
            for job in jobs.values():
                if job.schedule_id in self._topics.schedules:
                    gathered.add_run(job.schedule_id, job)
        for ident, schedule in changes.schedules.items():
            gathered.schedules[ident] = events.schedule_data(schedule)
        gathered.deleted += len(changes.schedules_deleted)
        gathered.queues.update(changes.queues)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        used_at, looks = loop.time(), 0
        while loop.time() - used_at < LINGER_S:
            await asyncio.sleep(FRAME_S)
            looks += 1
            if self.streams:
                used_at = loop.time()
            try:
                self.render(with_tick=looks % 2 == 0)
            except Exception:
                log.exception("events were lost by a bug in schedo")
        self._end()

    def render(self, *, with_tick: bool) -> None:
        """Render what has changed, and wake the streams."""
        if self._topics.end_old(asyncio.get_running_loop().time() - LINGER_S, self.newest):
            self.newest += 1  # what the next streams begin with differs from what those have seen
        before, epoch = self.newest, self._engine.health().epoch
        if epoch != self.epoch:  # a recovery may have undone what was shown
            self.epoch = epoch
            self._drop_all()
        gathered, self._gathered = self._gathered, Gathered()
        self._render_jobs(gathered)
        self._render_progress()
        self._render_schedules(gathered)
        if gathered.queues:
            self._add("queues", "queues", partial(events.queues_data, gathered.queues))
        if with_tick:
            self._render_second()
        if with_tick or self.newest != before:
            self._wake_streams()

    def _render_jobs(self, gathered: Gathered) -> None:
        for ident, data in gathered.watched.items():
            self._add(f"{JOB}{ident}", "job", partial(dict, data))
        for ident, runs in gathered.runs.items():
            self._add(f"{SCHEDULE}{ident}", "jobs", partial(events.jobs_data, runs, {}))
        if gathered.states:
            self._add("jobs", "jobs", partial(events.jobs_data, gathered.jobs, gathered.states))

    def _render_progress(self) -> None:
        """Render the progress of watched jobs. It is not stored, so no commit tells of it."""
        before, self._progress = self._progress, {}
        for ident in self._topics.jobs:
            line = self._engine.sessions.last_progress_of(ident)
            if line is None:
                continue
            self._progress[ident] = line
            if line is not before.get(ident):
                self._add(f"{JOB}{ident}", "progress", partial(events.progress_data, line))

    def _render_schedules(self, gathered: Gathered) -> None:
        changed, deleted = gathered.schedules, gathered.deleted
        if changed or deleted:
            self._add("schedules", "schedules", partial(events.schedules_data, changed, deleted))
        for ident in self._topics.schedules & changed.keys():
            self._add(f"{SCHEDULE}{ident}", "schedule", partial(dict, changed[ident]))

    def _render_second(self) -> None:
        if "tick" in self._topics or "queues" in self._topics:
            tick, queues = self._read_second()
            self._add("tick", "tick", lambda: tick)
            self._render_counts(queues)
        if "workers" in self._topics:
            self._render_workers()

    def _render_counts(self, queues: Iterable[QueueStatus]) -> None:
        """Render the queues whose jobs are other ones than a second ago; gone ones have none."""
        before = self._queues
        self._queues = {
            seen.queue.name: (seen.queue, seen.running, seen.waiting) for seen in queues
        }
        changed = [seen for name, seen in self._queues.items() if seen != before.get(name)]
        changed += [
            (queue, 0, {}) for name, (queue, *_) in before.items() if name not in self._queues
        ]
        if changed:
            self._add("queues", "queues", partial(events.counts_data, changed))

    def _render_workers(self) -> None:
        before, self._workers = self._workers, self._read_workers()
        changed = [seen for name, seen in self._workers.items() if seen != before.get(name)]
        gone = [name for name in before if name not in self._workers]
        if changed or gone:
            self._add("workers", "workers", partial(events.workers_data, changed, gone))

    def _read_workers(self) -> dict[str, Seen]:
        found = self._engine.sessions.list(WORKERS_MAX, RUNS_MAX)
        return {seen.name: (_without_jobs(seen), _count_tasks(seen)) for seen in found}

    def _add(self, topic: str, name: str, make: Callable[[], dict[str, Any]]) -> None:
        """Add a frame, unless no stream has the topic."""
        if topic not in self._topics:
            return
        self.newest += 1
        data = events.render_event(self.ident(self.newest), name, make())
        self._frames.append(Frame(self.newest, topic, data))
        self._bytes += len(data)
        while len(self._frames) > FRAMES_MAX or self._bytes > FRAMES_BYTES_MAX:
            dropped = self._frames.popleft()
            self._bytes -= len(dropped.data)
            self._first = dropped.number + 1

    def _wake_streams(self) -> None:
        changed, self._changed = self._changed, LightEvent()
        changed.set()


class Stream:
    """The place of one client in the frames, and the pieces of its response."""

    def __init__(self, hub: EventHub, topics: Collection[str], last_id: str | None) -> None:
        self._hub = hub
        self._topics = topics
        self._epoch = hub.epoch
        found = hub.newest if last_id is None else hub.find(last_id, topics)
        self._is_reset = found is None
        self._number = hub.newest if found is None else found
        self._sent_at: float | None = None
        self._is_open = True

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece, at the latest a comment after COMMENT_S."""
        hub, loop = self._hub, asyncio.get_running_loop()
        if self._sent_at is None:
            self._sent_at = loop.time()
            return events.RETRY + self.take()
        while not hub.is_closed:
            piece = self.take()
            if not piece and loop.time() - self._sent_at >= COMMENT_S:
                piece = events.COMMENT
            if piece:
                self._sent_at = loop.time()
                return piece
            await hub.changed()
        if not self._is_open:
            raise StopAsyncIteration
        await self.aclose()
        return events.RETRY

    async def aclose(self) -> None:
        """Forget the stream; harmless if that has happened."""
        if self._is_open:
            self._is_open = False
            self._hub.forget(self._topics)

    def take(self) -> bytes:
        """Return what the client has not been sent yet, or that it has missed something."""
        hub = self._hub
        if self._is_reset or self._epoch != hub.epoch:
            self._is_reset, self._epoch = False, hub.epoch
            return self._skip("reset", {})
        if not hub.follows(self._number):
            return self._skip("gap", {"dropped": hub.newest - self._number})
        frames = hub.frames_after(self._number, self._topics)
        if len(frames) > 1 and sum(map(len, frames)) > STREAM_BYTES_MAX:
            return self._skip("gap", {"dropped": len(frames)})
        self._number = hub.newest
        return b"".join(frames)

    def _skip(self, name: str, data: dict[str, int]) -> bytes:
        self._number = self._hub.newest
        return events.render_event(self._hub.ident(self._number), name, data)


def _without_jobs(seen: WorkerStatus) -> WorkerStatus:
    """Leave out what differs each second, although a person sees nothing new."""
    return seen._replace(last_seen_at=None, runs=())


def _count_tasks(seen: WorkerStatus) -> dict[str, int]:
    """Return how many of its listed jobs a worker runs by task."""
    return dict(Counter(run.task for run in seen.runs))
