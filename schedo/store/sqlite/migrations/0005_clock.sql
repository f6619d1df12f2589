-- Instants that count elapsed time are on a timeline that advances evenly when the clock is set: the wall
-- clock's instant minus the offset, which meta has as clock_offset_us. The flags mark such instants.
-- Older versions did not store whether a scheduled job has a delay or a run_at, so waiting jobs still follow the wall clock.

ALTER TABLE job ADD COLUMN due_elapsed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN expires_elapsed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN offset_us INTEGER NOT NULL DEFAULT 0; -- when the job was created

UPDATE job SET due_elapsed = 1 WHERE (state = 'scheduled' OR state = 'retrying') AND state = 'retrying';

DROP INDEX job_timers;

-- LoadTimers reads this, one order for each kind; state and queue are in it so that count_jobs need not look up
-- the rows.
CREATE INDEX job_timers ON job (due_elapsed, due_at, id, state, queue)
    WHERE state = 'scheduled' OR state = 'retrying';

DROP INDEX job_expires;

-- LoadExpired.
CREATE INDEX job_expires ON job (expires_elapsed, expires_at, id) WHERE expires_at IS NOT NULL
    AND (state = 'scheduled' OR state = 'blocked' OR state = 'queued' OR state = 'retrying');

DROP INDEX job_instant;

-- A schedule fires once per instant, whatever the code above does wrong. When the clock was set back, an interval
-- comes to the same instant of the wall clock again.
CREATE UNIQUE INDEX job_instant ON job (schedule_id, scheduled_for, offset_us)
    WHERE trigger = 'schedule' OR trigger = 'catchup';

ALTER TABLE schedule ADD COLUMN phase_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schedule ADD COLUMN elapsed INTEGER NOT NULL DEFAULT 0;

UPDATE schedule SET elapsed = 1 WHERE spec ->> '$.rule.every_us' IS NOT NULL
    AND (spec ->> '$.rule.start_at' IS NULL OR evaluated_through >= spec ->> '$.rule.start_at');

DROP INDEX schedule_next;

-- LoadSchedules, one order for each kind.
CREATE INDEX schedule_next ON schedule (elapsed, next_fire_at, id) WHERE paused = 0 AND next_fire_at IS NOT NULL;
