-- How the runs of each schedule ended. A commit that ends runs changes it in the same transaction, without the row
-- of the schedule, which may have a large payload. name: that of the schedule, which never changes.
CREATE TABLE run_history (
    schedule_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    failed_in_row INTEGER NOT NULL, -- since the last completed run
    last_completed_at INTEGER,
    last_failed_at INTEGER,
    last_failed_job INTEGER,
    last_failure TEXT,
    last_runs TEXT NOT NULL -- oldest first
) STRICT;

-- Lists of failing schedules, by name.
CREATE INDEX run_history_failing ON run_history (name) WHERE failed_in_row > 0;
