-- schedo: reads_from=3
-- A job with a unique key is in the shard of the key, even if its queue has a limit: servers share limits now, and a key
-- must be checked by one server. Only this line of the function changes, so its privileges and settings stay.
DO $$
DECLARE
    before CONSTANT text := 'coalesce(home, unique_key, options -> ''unique'' ->> ''key'', options ->> ''unique'')';
    after CONSTANT text := 'coalesce(unique_key, options -> ''unique'' ->> ''key'', options ->> ''unique'', home)';
    definition CONSTANT text := pg_get_functiondef('enqueue'::regproc);
BEGIN
    ASSERT position(before IN definition) > 0 OR position(after IN definition) > 0;  -- it may be repeated
    EXECUTE replace(definition, before, after);
END $$;
