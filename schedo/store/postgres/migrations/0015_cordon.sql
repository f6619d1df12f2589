-- schedo: reads_from=3
-- The remote workers that get no new work until an operator says so.
CREATE TABLE cordon (
    name text COLLATE "C" PRIMARY KEY,
    since bigint NOT NULL
);
