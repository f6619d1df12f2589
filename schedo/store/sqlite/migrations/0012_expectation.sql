-- What is expected of the runs of schedules and of work outside, and whether it is met. A schedule's expectation has the
-- schedule's id. All of them are read at the start.
CREATE TABLE expectation (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    of_schedule INTEGER NOT NULL,
    rule TEXT NOT NULL,
    expect TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    through INTEGER NOT NULL,
    since INTEGER NOT NULL,
    cron_source TEXT,
    state TEXT NOT NULL, -- 'ok' or 'missed'
    missed INTEGER NOT NULL,
    kept_at INTEGER,
    long_job_id INTEGER,
    phase_us INTEGER NOT NULL,
    lag_us INTEGER NOT NULL,
    lag_through INTEGER NOT NULL,
    early TEXT NOT NULL -- instants
) STRICT;
