-- schedo: reads_from=15 time=constant
-- When a worker got the attempt, if started_at is when the worker itself began it; else NULL.
ALTER TABLE attempt ADD COLUMN picked_at INTEGER;
