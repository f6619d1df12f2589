-- Jobs of one lane can be run by the same workers, so a lane has a route: JSON, '' for none.

ALTER TABLE job ADD COLUMN route TEXT NOT NULL DEFAULT '';

DROP INDEX job_lane;

-- load_lane reads one lane of it, best rank first; open() skips from lane to lane; count_jobs counts it.
-- state is in it because SQLite checks the condition again, and would read the row for that.
CREATE INDEX job_lane ON job (queue, task, route, rank, id, state) WHERE state = 'queued';
