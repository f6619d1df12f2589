-- schedo: reads_from=3
-- What a commit sends of each job. An array of these is one parameter: to send and to read one for each column takes three
-- times as long. A version that needs other columns makes types with other names, because older servers still send these.
CREATE TYPE new_job AS (
    id bigint, task text, queue text, payload bytea, priority bigint, options text, state text, created_at bigint,
    due_at bigint, rank bigint, picked_at bigint, started_at bigint, ended_at bigint, attempt bigint, failures bigint,
    losses bigint, epoch bigint, worker text, schedule_id bigint, scheduled_for bigint, trigger text,
    missed_count bigint, unique_key text, expires_at bigint, cancel_requested_at bigint, result bytea, failure text,
    due_elapsed bigint, expires_elapsed bigint, offset_us bigint, kept_until bigint, requirements text,
    shard smallint
);
CREATE TYPE changed_job AS (
    priority bigint, state text, due_at bigint, rank bigint, picked_at bigint, started_at bigint, ended_at bigint,
    attempt bigint, failures bigint, losses bigint, epoch bigint, worker text, missed_count bigint, unique_key text,
    expires_at bigint, cancel_requested_at bigint, result bytea, failure text, due_elapsed bigint,
    expires_elapsed bigint, kept_until bigint, id bigint
);

-- Most jobs have no requirements, so most entries need no hash of them. Servers of an older version, which ask for the
-- hash, sort the waiting jobs of a task for each page until they are replaced.
DROP INDEX job_ready;
CREATE INDEX job_ready ON job (shard, queue, task, (CASE WHEN requirements = '' THEN '' ELSE md5(requirements) END),
    rank, id) WHERE state = 'queued';
