-- Operations on many jobs: those that run, and the latest ones that have ended. Few rows, all read at the start.
CREATE TABLE bulk_operation (
    id INTEGER PRIMARY KEY,
    record TEXT NOT NULL -- JSON
) STRICT;
