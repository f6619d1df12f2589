-- schedo: reads_from=3
-- Returns whether the session of the server with this number has ended, after a moment at most: its lock is free. The
-- lock is that of the transaction, so it is released with the response.
CREATE OR REPLACE FUNCTION await_end(class integer, no integer) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '800ms' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(class, no);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;
