-- schedo: reads_from=15 time=constant
-- What has ended, a row for all tasks, queues or schedules in an hour or a day.
CREATE TABLE tally (
    dimension TEXT NOT NULL, -- task, queue or schedule
    period TEXT NOT NULL, -- hour or day
    at INTEGER NOT NULL, -- when it began
    figures TEXT NOT NULL, -- JSON
    PRIMARY KEY (dimension, period, at)
) STRICT;
