-- Instants and durations are integer microseconds. JSON is TEXT where schedo wrote it (NULL: all defaults)
-- and BLOB where it only keeps it (payloads, results, bodies). No foreign keys: dependents of a job are
-- deleted with it by prune, and a schedule's jobs outlive the schedule.
--
-- Each index below costs every insert or every end of a job about 5 %, so each names the query that reads
-- it, and most are partial. A query reads a partial index only if it repeats the index's condition word for
-- word. Conditions say OR rather than IN: for an IN list of more than two SQLite builds a table at every
-- evaluation, which made inserts a third slower.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (name, value) VALUES ('epoch', 0);

CREATE TABLE job (
    -- created_at * 256, so the key itself serves "newest first" and ranges of created_at.
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    picked_at INTEGER,
    started_at INTEGER,
    ended_at INTEGER,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    worker TEXT,
    schedule_id INTEGER,
    scheduled_for INTEGER,
    trigger TEXT NOT NULL,
    missed_count INTEGER NOT NULL,
    unique_key TEXT,
    expires_at INTEGER,
    cancel_requested_at INTEGER,
    options TEXT,
    payload BLOB, -- NULL: in job_payload
    failure TEXT,
    result BLOB
) STRICT;

-- Payloads that are not kept in memory. They have their own table so that an update of the job, which
-- rewrites its row, does not write a megabyte again.
CREATE TABLE job_payload (
    job_id INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
) STRICT;

-- LoadTimers reads this; state and queue are in it so that count_jobs need not look up the rows.
CREATE INDEX job_timers ON job (due_at, id, state, queue) WHERE state = 'scheduled' OR state = 'retrying';

-- LoadReady reads one ready key of it, best rank first; open() skips from key to key; count_jobs counts it.
-- state is in it because SQLite checks the condition again, and would read the row for that.
CREATE INDEX job_lane ON job (queue, task, rank, id, state) WHERE state = 'queued';

-- load_running, the blocked jobs at open, and lists by state, newest first. Queued and scheduled jobs are
-- left out: almost every job passes through them, and their lists can be read from the two indexes above.
CREATE INDEX job_state ON job (state, id) WHERE state <> 'queued' AND state <> 'scheduled';

-- LoadExpired.
CREATE INDEX job_expires ON job (expires_at, id) WHERE expires_at IS NOT NULL
    AND (state = 'scheduled' OR state = 'blocked' OR state = 'queued' OR state = 'retrying');

-- LoadUniqueHolder; and at most one job holds a key.
CREATE UNIQUE INDEX job_unique ON job (unique_key) WHERE unique_key IS NOT NULL;

-- A schedule fires once per instant, whatever the code above does wrong.
CREATE UNIQUE INDEX job_instant ON job (schedule_id, scheduled_for)
    WHERE trigger = 'schedule' OR trigger = 'catchup';

-- The unfinished jobs of a schedule, read with it.
CREATE INDEX job_active ON job (schedule_id, id, state) WHERE schedule_id IS NOT NULL AND (state = 'scheduled'
    OR state = 'blocked' OR state = 'queued' OR state = 'running' OR state = 'retrying');

-- Lists by schedule, newest first.
CREATE INDEX job_schedule ON job (schedule_id, id) WHERE schedule_id IS NOT NULL;

-- Lists by task, newest first.
CREATE INDEX job_task ON job (task, id);

-- Lists by queue, newest first. The default queue has most jobs on most servers, so its list is read along
-- the primary key and its jobs do not pay for an index.
CREATE INDEX job_queue ON job (queue, id) WHERE queue <> 'default';

-- prune: ended jobs of one final state, longest ended first.
CREATE INDEX job_ended ON job (state, ended_at) WHERE ended_at IS NOT NULL;

-- Rows only for jobs that have tags. The key serves lists by tag.
CREATE TABLE job_tag (
    tag TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    PRIMARY KEY (tag, job_id)
) STRICT, WITHOUT ROWID;

-- prune deletes a job's tags.
CREATE INDEX job_tag_job ON job_tag (job_id);

-- Ended attempts that did not complete their job. number counts within the job; the oldest are dropped.
CREATE TABLE attempt (
    job_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    worker TEXT,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    failure TEXT,
    PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE output (
    job_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    stream TEXT NOT NULL,
    total_bytes INTEGER NOT NULL,
    head BLOB NOT NULL,
    tail BLOB NOT NULL,
    PRIMARY KEY (job_id, attempt, stream)
) STRICT;

CREATE TABLE schedule (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE, -- list_schedules reads this index
    spec TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    evaluated_through INTEGER NOT NULL,
    next_fire_at INTEGER,
    paused INTEGER NOT NULL,
    note TEXT,
    fired INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    overlap_skipped INTEGER NOT NULL,
    buffered INTEGER NOT NULL,
    last_fired_at INTEGER,
    last_job_id INTEGER
) STRICT;

-- LoadSchedules.
CREATE INDEX schedule_next ON schedule (next_fire_at, id) WHERE paused = 0 AND next_fire_at IS NOT NULL;

-- number counts within the schedule, so that keeping the latest is one short range delete.
CREATE TABLE decision (
    schedule_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    scheduled_for INTEGER NOT NULL,
    decided_at INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    job_id INTEGER,
    count INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue (
    name TEXT PRIMARY KEY,
    concurrency INTEGER,
    paused INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    priority_step_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Stored answers to requests with an Idempotency-Key.
CREATE TABLE answer (
    scope TEXT PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    status INTEGER NOT NULL,
    body BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- prune: oldest answers first.
CREATE INDEX answer_created ON answer (created_at);
