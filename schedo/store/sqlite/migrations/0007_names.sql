-- Names as in docs/glossary.md. The write buffer is empty here: its entries are replayed before a migration.

DROP TRIGGER journal_commit;

ALTER TABLE journal RENAME TO write_buffer;

-- An entry is a transaction of a single statement.
CREATE TRIGGER write_buffer_commit AFTER INSERT ON write_buffer
BEGIN
    UPDATE meta SET value = value + 1 WHERE name = 'commits';
END;

-- The columns of the rows in the entries, as JSON: a later version, with other columns, can replay them.
CREATE TABLE write_buffer_layout (
    kind TEXT PRIMARY KEY, -- 'new' or 'known'
    columns TEXT NOT NULL
) STRICT, WITHOUT ROWID;

DROP INDEX job_lane;

ALTER TABLE job RENAME COLUMN route TO requirements;

-- LoadReady reads one ready key of it, best rank first; open() skips from key to key; count_jobs counts it.
-- state is in it because SQLite checks the condition again, and would read the row for that.
CREATE INDEX job_ready ON job (queue, task, requirements, rank, id, state) WHERE state = 'queued';

ALTER TABLE decision RENAME COLUMN verdict TO decision;

DROP INDEX answer_created;

ALTER TABLE answer RENAME TO idempotency_record;

-- prune: oldest records first.
CREATE INDEX idempotency_record_created ON idempotency_record (created_at);
