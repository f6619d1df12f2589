-- schedo: reads_from=15 time=constant
-- Operations that undo others. An older version must not take them for operations of their own.
CREATE TABLE bulk_undo (
    id INTEGER PRIMARY KEY,
    record TEXT NOT NULL -- JSON
) STRICT;
-- The jobs of each step of an operation, as they were before it.
CREATE TABLE bulk_step (
    operation INTEGER NOT NULL,
    number INTEGER NOT NULL,
    jobs TEXT NOT NULL, -- JSON
    PRIMARY KEY (operation, number)
) STRICT, WITHOUT ROWID;
