-- The number of the last commit, and a random number that identifies this store. The last-commit file repeats both
-- (see store/sqlite/last_commit.py). Every transaction writes this row, so each part of the log that SQLite accepts has
-- the number of its last commit.
INSERT INTO meta (name, value) VALUES ('commits', 0), ('store', random());

-- An entry of the journal is a transaction of a single statement.
CREATE TRIGGER journal_commit AFTER INSERT ON journal
BEGIN
    UPDATE meta SET value = value + 1 WHERE name = 'commits';
END;
