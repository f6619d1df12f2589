-- schedo: reads_from=15 time=constant
-- When an attempt was due: the job has only the due instant of its latest one.
ALTER TABLE attempt ADD COLUMN due_at INTEGER;
