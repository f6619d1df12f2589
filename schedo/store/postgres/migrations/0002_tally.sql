-- schedo: reads_from=1
-- What has ended, a row for all tasks, queues or schedules in an hour or a day.
CREATE TABLE tally (
    dimension text COLLATE "C" NOT NULL, -- task, queue or schedule
    period text COLLATE "C" NOT NULL, -- hour or day
    at bigint NOT NULL, -- when it began
    figures text NOT NULL, -- JSON
    PRIMARY KEY (dimension, period, at)
);
