-- schedo: reads_from=3
-- Servers of a cluster share the limits of queues. The owner of the shard of a queue's name says how many of its jobs
-- each other server may run (share), and that one says how many it counts on (held), which it raises to its share at
-- most. So a limit is kept if, for each server, the larger one of the two is counted.
CREATE TABLE queue_share (
    queue text COLLATE "C" NOT NULL,
    server bigint NOT NULL, -- its number
    wanted bigint NOT NULL,
    share bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL,
    PRIMARY KEY (queue, server)
) WITH (fillfactor = 50);

-- The owner that has read what is in the shard. Until it has, it does not count the jobs that run there.
ALTER TABLE shard ADD COLUMN read_by bigint;
