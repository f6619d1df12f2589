-- The route is the requirements of a job, as JSON; '' for none. It is a part of the ready key.

ALTER TABLE job ADD COLUMN route TEXT NOT NULL DEFAULT '';

DROP INDEX job_lane;

-- LoadReady reads one ready key of it, best rank first; open() skips from key to key; count_jobs counts it.
-- state is in it because SQLite checks the condition again, and would read the row for that.
CREATE INDEX job_lane ON job (queue, task, route, rank, id, state) WHERE state = 'queued';
