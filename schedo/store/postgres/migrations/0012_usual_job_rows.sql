-- schedo: reads_from=3
-- What a commit sends of a job whose other columns have their usual values, which the statement has (see job_rows.py).
CREATE TYPE usual_new_job AS (
    id bigint, task text, queue text, payload bytea, priority bigint, options text, created_at bigint, due_at bigint,
    rank bigint, offset_us bigint, shard smallint
);
CREATE TYPE usual_changed_job AS (
    id bigint, priority bigint, state text, due_at bigint, rank bigint, picked_at bigint, started_at bigint,
    ended_at bigint, attempt bigint, epoch bigint, worker text, result bytea
);
