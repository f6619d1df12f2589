-- schedo: reads_from=3
-- Several servers share the store: every job and schedule is in one of 32 shards, and each shard has one owner.

-- The shard of a text; schedo/core/shards.py finds the same.
CREATE FUNCTION shard_of(name text) RETURNS smallint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (('x' || left(md5(name), 8))::bit(32)::bigint % 32)::smallint
$$;

CREATE TABLE shard (
    no smallint PRIMARY KEY,
    owner bigint -- the number of a server; NULL: the next server takes it
);
-- A server of an older version, which may still run, has all of them.
INSERT INTO shard (no, owner)
SELECT no, (SELECT server.no FROM server WHERE state = 'open') FROM generate_series(0, 31) AS no;

ALTER TABLE server
    ADD COLUMN url text NOT NULL DEFAULT '', -- by which other servers reach it
    ADD COLUMN timeout_us bigint NOT NULL DEFAULT 0, -- it may be silent for this long
    ADD COLUMN settings bigint NOT NULL DEFAULT 0, -- the version of the queues and pauses that it follows
    -- Its sessions: the one that holds its lock and writes, and the one whose queries are its heartbeats.
    ADD COLUMN writer_pid integer,
    ADD COLUMN writer_began timestamptz,
    ADD COLUMN control_pid integer,
    ADD COLUMN control_began timestamptz;

ALTER TABLE schedule ADD COLUMN shard smallint NOT NULL GENERATED ALWAYS AS (shard_of(name)) STORED;
ALTER TABLE expectation ADD COLUMN shard smallint NOT NULL GENERATED ALWAYS AS (shard_of(name)) STORED;
ALTER TABLE bulk_operation ADD COLUMN shard smallint NOT NULL DEFAULT 0;
ALTER TABLE run_release ADD COLUMN shard smallint NOT NULL DEFAULT 0;
UPDATE run_release SET shard = schedule.shard FROM schedule WHERE schedule.id = schedule_id;
UPDATE job SET shard = coalesce(
    (SELECT schedule.shard FROM schedule WHERE schedule.id = job.schedule_id),
    (SELECT shard_of(name) FROM queue WHERE name = job.queue AND concurrency IS NOT NULL),
    shard_of(unique_key),
    (job.id / 256 % 32)::smallint
);

DROP INDEX job_timers;
CREATE INDEX job_timers ON job (shard, due_elapsed, due_at, id) WHERE state = 'scheduled' OR state = 'retrying';
DROP INDEX job_ready;
CREATE INDEX job_ready ON job (shard, queue, task, md5(requirements), rank, id) WHERE state = 'queued';

-- Each server has figures and a clock of its own.
ALTER TABLE minute ADD COLUMN server bigint NOT NULL DEFAULT 1;
ALTER TABLE minute DROP CONSTRAINT minute_pkey, ADD PRIMARY KEY (server, at);
UPDATE meta SET name = name || '_1' WHERE name LIKE 'clock\_%';

-- Waits until the server with this number is gone, and then holds its lock. A query that waits keeps old rows alive,
-- so it waits for less than a second at once.
CREATE FUNCTION await_end(class integer, no integer) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '800ms' AS $$
BEGIN
    PERFORM pg_advisory_lock_shared(class, no);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- Gives shards of a server that is gone to another one, and returns those that it got. NULL: the server holds its lock,
-- so its session may commit yet. Under the lock, all that it has committed is visible, and nothing can follow.
CREATE FUNCTION take_over(class integer, gone bigint, taker bigint, wanted smallint[]) RETURNS smallint[]
LANGUAGE plpgsql AS $$
DECLARE
    taken smallint[];
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(class, gone::integer) THEN
        RETURN NULL;
    END IF;
    WITH moved AS (
        UPDATE shard SET owner = taker WHERE owner = gone AND no = ANY(wanted) RETURNING no
    )
    SELECT coalesce(array_agg(no), '{}') INTO taken FROM moved;
    RETURN taken;
END $$;
