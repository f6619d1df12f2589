-- schedo: reads_from=3
-- Their keys differ but for the versions of one job, so there are no duplicates to merge, and PostgreSQL looks for them in
-- each full page: a fifth of its work for a commit. Pages that are there stay as they are.
ALTER INDEX job_task SET (deduplicate_items = off);
ALTER INDEX job_queue SET (deduplicate_items = off);
