-- schedo: reads_from=15 time=constant
-- Random keys of this store; a backup has none.
CREATE TABLE secret (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
