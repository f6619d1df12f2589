-- The figures of the minutes of the last day, a row for each in which a server ran.
CREATE TABLE minute (
    at INTEGER PRIMARY KEY, -- when it began
    figures TEXT NOT NULL -- JSON
) STRICT;
