-- The pauses of the whole server: a row for each scope that is paused.
CREATE TABLE pause (
    scope TEXT PRIMARY KEY, -- 'starts' or 'schedules'
    since INTEGER NOT NULL,
    note TEXT,
    until INTEGER
) STRICT, WITHOUT ROWID;
