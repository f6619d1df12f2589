-- Commits of plain jobs that are durable but not yet in the tables: see store/sqlite/write_buffer.py. A row is one commit;
-- rows are appended, and the oldest are deleted in the transaction that writes their jobs to the job table.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
