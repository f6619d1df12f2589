-- schedo: reads_from=15 time=constant
-- Who changed what by hand: one row for each change, the newest ones only.
CREATE TABLE action_log (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    via TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    answer TEXT NOT NULL,
    changed INTEGER, -- how many things
    is_job INTEGER NOT NULL -- it changed a single job; these have a bound of their own
) STRICT;
CREATE INDEX action_log_target ON action_log (target, number);
CREATE INDEX action_log_is_job ON action_log (is_job, number);
