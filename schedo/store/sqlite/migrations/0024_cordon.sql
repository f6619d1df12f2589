-- schedo: reads_from=15 time=constant
-- The remote workers that get no new work until an operator says so.
CREATE TABLE cordon (
    name TEXT PRIMARY KEY,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
