-- kept_until: when an ended job may be deleted, if a job, schedule, task or queue says so; NULL: the general retention.
ALTER TABLE job ADD COLUMN kept_until INTEGER;

-- A run of a schedule is released to the general retention, with 1, when enough newer runs have ended. Only pruning
-- reads and writes it.
ALTER TABLE job ADD COLUMN released INTEGER;

DROP INDEX job_ended;

-- prune: ended jobs of one final state that the general retention concerns, longest ended first.
CREATE INDEX job_ended ON job (state, ended_at) WHERE ended_at IS NOT NULL AND kept_until IS NULL
    AND (schedule_id IS NULL OR released = 1);

-- prune: ended jobs with a time of their own.
CREATE INDEX job_kept ON job (kept_until) WHERE kept_until IS NOT NULL;

-- prune: the runs of a schedule that are not released, newest first.
CREATE INDEX job_held ON job (schedule_id, id) WHERE schedule_id IS NOT NULL AND released IS NULL
    AND ended_at IS NOT NULL;

-- The schedules, also deleted ones, of which runs have ended since pruning has released runs of them.
CREATE TABLE run_release (
    schedule_id INTEGER PRIMARY KEY,
    due_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL
) STRICT;

CREATE INDEX run_release_due ON run_release (due_at);

INSERT INTO run_release (schedule_id, due_at, last_at)
SELECT DISTINCT schedule_id, 0, 0 FROM job WHERE schedule_id IS NOT NULL;

ALTER TABLE queue ADD COLUMN keep TEXT; -- as JSON; NULL: no times of its own
