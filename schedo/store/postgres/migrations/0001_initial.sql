-- schedo: reads_from=1
-- The tables have the columns of the SQLite store (schedo/store/sqlite/migrations), so that both stores share the
-- functions which make rows of records. All numbers are bigint, also flags, which are 0 or 1. JSON is text where schedo
-- wrote it, and bytea where it only keeps it. Texts compare byte by byte, as in SQLite. No foreign keys: dependents of a
-- job are deleted with it, and a schedule's jobs outlive the schedule.
--
-- The indexes of lists have (id + 0) instead of id. So only they have the order that a search in them asks for, and
-- the planner cannot take the primary key instead and filter millions of jobs (see job_search.py).

CREATE SEQUENCE epoch;

CREATE TABLE meta (
    name text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);

-- The servers of this store. Today one at a time has it: number 1.
CREATE TABLE server (
    no bigint PRIMARY KEY,
    name text NOT NULL, -- of the host and the process
    boot text NOT NULL, -- identifies the start of the host
    epoch bigint NOT NULL, -- its first one
    version text NOT NULL,
    state text NOT NULL, -- open, or closed if it ended in order
    opened_at timestamptz NOT NULL
);

CREATE TABLE job (
    id bigint PRIMARY KEY, -- created_at * 256
    task text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    payload bytea, -- NULL: in job_payload
    priority bigint NOT NULL,
    options text,
    state text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    due_at bigint NOT NULL,
    rank bigint NOT NULL,
    picked_at bigint,
    started_at bigint,
    ended_at bigint,
    attempt bigint NOT NULL,
    failures bigint NOT NULL,
    losses bigint NOT NULL,
    epoch bigint NOT NULL,
    worker text COLLATE "C",
    schedule_id bigint,
    scheduled_for bigint,
    trigger text COLLATE "C" NOT NULL,
    missed_count bigint NOT NULL,
    unique_key text COLLATE "C",
    expires_at bigint,
    cancel_requested_at bigint,
    result bytea,
    failure text,
    due_elapsed bigint NOT NULL,
    expires_elapsed bigint NOT NULL,
    offset_us bigint NOT NULL,
    kept_until bigint,
    requirements text COLLATE "C" NOT NULL, -- JSON; '' for none
    released bigint,
    shard smallint NOT NULL DEFAULT 0 -- for several servers, each of which will own some shards
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE job ALTER COLUMN payload SET STORAGE EXTERNAL; -- compression costs more than it saves below 4 KiB

CREATE TABLE job_payload (
    job_id bigint PRIMARY KEY,
    payload bytea NOT NULL
);

-- LoadTimers.
CREATE INDEX job_timers ON job (due_elapsed, due_at, id) WHERE state = 'scheduled' OR state = 'retrying';

-- LoadReady. The requirements may be longer than an entry of an index.
CREATE INDEX job_ready ON job (queue, task, md5(requirements), rank, id) WHERE state = 'queued';

-- load_running, blocked runs, lists by state.
CREATE INDEX job_state ON job (state, (id + 0)) WHERE state <> 'queued' AND state <> 'scheduled';

-- LoadExpired.
CREATE INDEX job_expires ON job (expires_elapsed, expires_at, id) WHERE expires_at IS NOT NULL
    AND (state = 'scheduled' OR state = 'blocked' OR state = 'queued' OR state = 'retrying');

-- LoadUniqueHolders; and at most one job holds a key.
CREATE UNIQUE INDEX job_unique ON job (unique_key) WHERE unique_key IS NOT NULL;

-- A schedule fires once per instant, whatever the code above does wrong.
CREATE UNIQUE INDEX job_instant ON job (schedule_id, scheduled_for, offset_us)
    WHERE trigger = 'schedule' OR trigger = 'catchup';

-- The unfinished runs of a schedule, read with it.
CREATE INDEX job_active ON job (schedule_id, id) WHERE schedule_id IS NOT NULL AND (state = 'scheduled'
    OR state = 'blocked' OR state = 'queued' OR state = 'running' OR state = 'retrying');

-- Lists by schedule, by task and by queue. The default queue has most jobs: its list is read along the primary key.
CREATE INDEX job_schedule ON job (schedule_id, (id + 0)) WHERE schedule_id IS NOT NULL;
CREATE INDEX job_task ON job (task, (id + 0));
CREATE INDEX job_queue ON job (queue, (id + 0)) WHERE queue <> 'default';

-- prune: ended jobs that the general retention concerns, those with a time of their own, and the runs of a schedule
-- that are not released yet.
CREATE INDEX job_ended ON job (state, ended_at) WHERE ended_at IS NOT NULL AND kept_until IS NULL
    AND (schedule_id IS NULL OR released = 1);
CREATE INDEX job_kept ON job (kept_until) WHERE kept_until IS NOT NULL;
CREATE INDEX job_held ON job (schedule_id, (id + 0)) WHERE schedule_id IS NOT NULL AND released IS NULL
    AND ended_at IS NOT NULL;

CREATE TABLE job_tag (
    tag text COLLATE "C" NOT NULL,
    job_id bigint NOT NULL,
    PRIMARY KEY (tag, job_id)
);
CREATE INDEX job_tag_job ON job_tag (job_id);

CREATE TABLE attempt (
    job_id bigint NOT NULL,
    number bigint NOT NULL,
    attempt bigint NOT NULL,
    epoch bigint NOT NULL,
    worker text,
    started_at bigint,
    ended_at bigint NOT NULL,
    outcome text NOT NULL,
    failure text,
    due_at bigint,
    picked_at bigint,
    PRIMARY KEY (job_id, number)
);

CREATE TABLE output (
    job_id bigint NOT NULL,
    attempt bigint NOT NULL,
    stream text COLLATE "C" NOT NULL,
    head bytea NOT NULL,
    tail bytea NOT NULL,
    total_bytes bigint NOT NULL,
    PRIMARY KEY (job_id, attempt, stream)
);

CREATE TABLE schedule (
    id bigint PRIMARY KEY,
    spec text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    evaluated_through bigint NOT NULL,
    next_fire_at bigint,
    paused bigint NOT NULL,
    note text,
    fired bigint NOT NULL,
    missed bigint NOT NULL,
    overlap_skipped bigint NOT NULL,
    buffered bigint NOT NULL,
    last_fired_at bigint,
    last_job_id bigint,
    phase_us bigint NOT NULL,
    owner text COLLATE "C" NOT NULL,
    declared text,
    name text COLLATE "C" NOT NULL UNIQUE,
    elapsed bigint NOT NULL
);
CREATE INDEX schedule_next ON schedule (elapsed, next_fire_at, id) WHERE paused = 0 AND next_fire_at IS NOT NULL;
CREATE INDEX schedule_paused ON schedule (name) WHERE paused = 1;
CREATE INDEX schedule_ended ON schedule (name) WHERE paused = 0 AND next_fire_at IS NULL;

-- number counts within the schedule.
CREATE TABLE decision (
    schedule_id bigint NOT NULL,
    number bigint NOT NULL,
    scheduled_for bigint NOT NULL,
    decided_at bigint NOT NULL,
    decision text NOT NULL,
    job_id bigint,
    count bigint NOT NULL,
    PRIMARY KEY (schedule_id, number)
);

CREATE TABLE run_history (
    schedule_id bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    expired bigint NOT NULL,
    failed_in_row bigint NOT NULL,
    last_completed_at bigint,
    last_failed_at bigint,
    last_failed_job bigint,
    last_failure text,
    last_runs jsonb NOT NULL -- oldest first
);
CREATE INDEX run_history_failing ON run_history (name) WHERE failed_in_row > 0;

CREATE TABLE run_release (
    schedule_id bigint PRIMARY KEY,
    due_at bigint NOT NULL,
    last_at bigint NOT NULL
);
CREATE INDEX run_release_due ON run_release (due_at);

CREATE TABLE queue (
    name text COLLATE "C" PRIMARY KEY,
    concurrency bigint,
    paused bigint NOT NULL,
    weight bigint NOT NULL,
    priority_step_us bigint NOT NULL,
    keep text,
    pause text
);

CREATE TABLE pause (
    scope text COLLATE "C" PRIMARY KEY,
    since bigint NOT NULL,
    note text,
    until bigint
);

CREATE TABLE expectation (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    of_schedule bigint NOT NULL,
    rule text NOT NULL,
    expect text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    through bigint NOT NULL,
    since bigint NOT NULL,
    cron_source text,
    state text NOT NULL,
    missed bigint NOT NULL,
    kept_at bigint,
    long_job_id bigint,
    phase_us bigint NOT NULL,
    lag_us bigint NOT NULL,
    lag_through bigint NOT NULL,
    early text NOT NULL,
    owner text NOT NULL
);

CREATE TABLE bulk_operation (
    id bigint PRIMARY KEY,
    record text NOT NULL -- JSON
);
CREATE TABLE bulk_step (
    operation bigint NOT NULL,
    number bigint NOT NULL,
    jobs text NOT NULL, -- JSON
    PRIMARY KEY (operation, number)
);

CREATE TABLE idempotency_record (
    scope text COLLATE "C" PRIMARY KEY,
    fingerprint bytea NOT NULL,
    status bigint NOT NULL,
    body bytea NOT NULL,
    created_at bigint NOT NULL
);
CREATE INDEX idempotency_record_created ON idempotency_record (created_at);

CREATE TABLE minute (
    at bigint PRIMARY KEY,
    figures text NOT NULL -- JSON
);

CREATE TABLE secret (
    name text PRIMARY KEY,
    value bytea NOT NULL
);

CREATE TABLE action_log (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    who text COLLATE "C" NOT NULL,
    via text NOT NULL,
    address text NOT NULL,
    action text NOT NULL,
    target text COLLATE "C" NOT NULL,
    answer text NOT NULL,
    changed bigint,
    is_job bigint NOT NULL
);
CREATE INDEX action_log_target ON action_log (target, number);
CREATE INDEX action_log_is_job ON action_log (is_job, number);

-- Ends a statement, and so its commit, if an update has not found all its rows.
CREATE FUNCTION require_all(updated bigint, wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF updated <> wanted THEN
        RAISE EXCEPTION '% of % updated jobs are not in the store', wanted - updated, wanted USING ERRCODE = 'SD404';
    END IF;
    RETURN true;
END $$;

-- Returns NULL for a text that is not JSON, so that one of them does not fail a search.
CREATE FUNCTION parse_json(body text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN body::jsonb;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$;

-- Returns '' for bytes that are not text in UTF-8.
CREATE FUNCTION as_text(body bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(body, 'UTF8');
EXCEPTION WHEN others THEN
    RETURN '';
END $$;
