-- The number of the last commit, and a number that names this store: what the witness beside the file repeats
-- (see store/sqlite/last_commit.py). Every transaction writes this row, so whatever part of the log SQLite believes in says
-- how far it goes.
INSERT INTO meta (name, value) VALUES ('commits', 0), ('store', random());

-- An entry of the journal is a transaction of a single statement.
CREATE TRIGGER journal_commit AFTER INSERT ON journal
BEGIN
    UPDATE meta SET value = value + 1 WHERE name = 'commits';
END;
