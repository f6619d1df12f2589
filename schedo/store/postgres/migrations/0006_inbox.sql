-- schedo: reads_from=1
-- What SQL clients submit in their own transactions (docs/sql.md). A server moves the rows into the jobs.
CREATE TABLE inbox (
    id bigint PRIMARY KEY, -- of the job, too
    shard smallint NOT NULL, -- of the job; its owner reads the row
    xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint, -- which has inserted it
    spec text NOT NULL -- JSON: the body of POST /v1/jobs
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The order in which a server reads it: see inbox.py.
CREATE INDEX inbox_order ON inbox (xact, id);

-- The last id, without the slot.
CREATE SEQUENCE inbox_number;

-- Returns an id of slot 62 (schedo/core/ids.py) that is larger than all before, in all sessions: the present, or the next
-- number if the present was given out. The lock is for a moment only, because the end of a subtransaction releases it; a
-- sequence keeps its value then.
CREATE FUNCTION next_inbox_id() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtext('schedo inbox'), hashtext(current_schema()));
        SELECT greatest(last_value + 1, floor(extract(epoch FROM clock_timestamp()) * 4000000)::bigint) INTO number
            FROM inbox_number;
        PERFORM setval('inbox_number', number);
        RAISE EXCEPTION USING ERRCODE = 'SD000';
    EXCEPTION WHEN SQLSTATE 'SD000' THEN
        NULL;
    END;
    RETURN number * 64 + 62;
END $$;

-- Returns an id as the API shows it.
CREATE FUNCTION render_id(id bigint) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', ((id >> (5 * place)) & 31)::int + 1, 1), ''
        ORDER BY place DESC) FROM generate_series(0, 12) AS place
$$;

-- Returns the shard of a text, as schedo/core/shards.py does, or one of all shards for a job without a home.
CREATE FUNCTION shard_of_job(id bigint, home text) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT (coalesce(('x' || left(md5(home), 8))::bit(32)::bigint, id / 256) % 32)::smallint
$$;

CREATE FUNCTION refuse_argument(name text, reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'enqueue: %: %', name, reason USING ERRCODE = 'invalid_parameter_value';
END $$;

-- A function with the rights of its owner must not find tables of the caller, so its path is fixed, with pg_temp last.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE FUNCTION enqueue(
    task text,
    payload jsonb DEFAULT NULL,
    queue text DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    priority integer DEFAULT NULL,
    unique_key text DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    name_form CONSTANT text := '^[A-Za-z0-9._][A-Za-z0-9._-]{0,127}$';
    own CONSTANT text[] := ARRAY['task', 'payload', 'queue', 'run_at', 'delay', 'priority'];
    known CONSTANT text[] := ARRAY[
        'delivery', 'expires_at', 'expires_in', 'keep', 'meta', 'on_failure', 'prefer', 'requires', 'retry', 'tags',
        'timeout', 'traceparent', 'tracestate', 'unique'
    ];
    option text;
    home text; -- the text whose shard the job must have, as in the store: of a limited queue, or of a unique key
    spec jsonb := '{}';
    job bigint;
BEGIN
    IF task IS NULL OR task !~ name_form THEN
        PERFORM refuse_argument('task', 'a name has 1 to 128 letters, digits, dots, underscores and hyphens');
    ELSIF queue !~ name_form THEN
        PERFORM refuse_argument('queue', 'a name has 1 to 128 letters, digits, dots, underscores and hyphens');
    ELSIF run_at IS NOT NULL AND delay IS NOT NULL THEN
        PERFORM refuse_argument('delay', 'give run_at or delay, not both');
    ELSIF run_at < '1970-01-01Z' OR run_at >= '10000-01-01Z' THEN
        PERFORM refuse_argument('run_at', 'an instant is in the years 1970 to 9999');
    ELSIF delay < '0' THEN
        PERFORM refuse_argument('delay', 'it is negative');
    ELSIF delay > '100 years' THEN
        PERFORM refuse_argument('delay', 'it is more than 100 years');
    ELSIF priority NOT BETWEEN -9 AND 9 THEN
        PERFORM refuse_argument('priority', 'it is a number from -9 to 9');
    ELSIF length(unique_key) NOT BETWEEN 1 AND 255 THEN
        PERFORM refuse_argument('unique_key', 'a key has 1 to 255 characters');
    ELSIF unique_key IS NOT NULL AND options ? 'unique' THEN
        PERFORM refuse_argument('unique_key', 'give it or the option unique, not both');
    ELSIF jsonb_typeof(options) <> 'object' THEN
        PERFORM refuse_argument('options', 'it is a JSON object');
    END IF;
    IF options IS NOT NULL THEN
        FOR option IN SELECT jsonb_object_keys(options) LOOP
            IF option = ANY(own) THEN
                PERFORM refuse_argument('options', quote_literal(option) || ' is an argument of its own');
            ELSIF option <> ALL(known) THEN
                PERFORM refuse_argument(
                    'options', quote_literal(option) || ' is none of ' || array_to_string(known, ', '));
            END IF;
        END LOOP;
        spec := options;
    END IF;

    spec := spec || jsonb_build_object('task', task);
    IF payload IS NOT NULL THEN
        spec := spec || jsonb_build_object('payload', payload);
    END IF;
    IF queue IS NOT NULL THEN
        spec := spec || jsonb_build_object('queue', queue);
    END IF;
    IF run_at IS NOT NULL THEN
        spec := spec || jsonb_build_object(
            'run_at', to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
    END IF;
    IF delay IS NOT NULL THEN
        spec := spec || jsonb_build_object('delay', round(extract(epoch FROM delay) * 1000000)::bigint || 'us');
    END IF;
    IF priority IS NOT NULL THEN
        spec := spec || jsonb_build_object('priority', priority);
    END IF;
    IF unique_key IS NOT NULL THEN
        spec := spec || jsonb_build_object('unique', unique_key);
    END IF;

    SELECT limited.name INTO home FROM queue AS limited
        WHERE limited.name = coalesce(enqueue.queue, 'default') AND limited.concurrency IS NOT NULL;
    home := coalesce(home, unique_key, options -> 'unique' ->> 'key', options ->> 'unique');
    job := next_inbox_id();
    INSERT INTO inbox (id, shard, spec) VALUES (job, shard_of_job(job, home), spec::text);
    IF nullif(current_setting('schedo.notify', true), '')::boolean THEN
        PERFORM pg_notify('schedo_inbox', current_schema());
    END IF;
    RETURN render_id(job);
END $$;

-- Who may call it may submit jobs of any task and queue, so that is granted to chosen roles only.
REVOKE ALL ON FUNCTION enqueue FROM PUBLIC;
REVOKE ALL ON FUNCTION next_inbox_id FROM PUBLIC;
SELECT set_config('search_path', quote_ident(current_schema()), true);
