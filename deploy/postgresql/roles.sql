-- The roles of a schedo in PostgreSQL, each with the least that it needs. Run it as an administrator of the database:
--
--     psql -d jobs -v schema=schedo -f roles.sql
--     schedo store migrate --store 'postgresql://schedo_owner@db/jobs?schema=schedo'
--     psql -d jobs -v schema=schedo -f roles.sql      # again, for what depends on the tables
--
-- Run it again after each migration by a new version; it changes nothing that is as it should be.
--
--     schedo_owner      owns the tables, and changes them: schedo store migrate
--     schedo_server     reads and writes the rows: schedo serve
--     schedo_enqueue    calls the functions that submit jobs in SQL, and sees no job
--     schedo_read       reads all tables but the one with the secret, for reports
--
-- The roles log in only after ALTER ROLE … LOGIN, with a password or by pg_hba.conf. Or grant them to your own users,
-- as in GRANT schedo_enqueue TO shop.

\set ON_ERROR_STOP on
\if :{?schema}
\else
    \set schema schedo
\endif
BEGIN;

SELECT format('CREATE ROLE %I NOLOGIN', role)
FROM unnest(ARRAY['schedo_owner', 'schedo_server', 'schedo_enqueue', 'schedo_read']) AS role
WHERE role NOT IN (SELECT rolname FROM pg_roles) \gexec

SELECT format('CREATE SCHEMA %I AUTHORIZATION schedo_owner', :'schema')
WHERE :'schema' NOT IN (SELECT nspname FROM pg_namespace) \gexec

GRANT CONNECT ON DATABASE :"DBNAME" TO schedo_owner, schedo_server, schedo_enqueue, schedo_read;
GRANT USAGE ON SCHEMA :"schema" TO schedo_server, schedo_enqueue, schedo_read;

-- Also for the tables that later migrations make.
ALTER DEFAULT PRIVILEGES FOR ROLE schedo_owner IN SCHEMA :"schema"
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO schedo_server;
ALTER DEFAULT PRIVILEGES FOR ROLE schedo_owner IN SCHEMA :"schema" GRANT USAGE, SELECT ON SEQUENCES TO schedo_server;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA :"schema" TO schedo_server;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA :"schema" TO schedo_server;

-- Servers that log in as several users see only with it that the others live. It also shows whose transaction keeps dead
-- rows from being removed.
GRANT pg_read_all_stats TO schedo_server;

SELECT format('GRANT SELECT ON %I.%I TO schedo_read', schemaname, tablename)
FROM pg_tables WHERE schemaname = :'schema' AND tablename <> 'secret' \gexec

-- Other functions of the schema are parts of its statements and reach no table that the caller cannot reach. Everyone may
-- execute them, unless ALTER DEFAULT PRIVILEGES has taken that away.
SELECT format('GRANT EXECUTE ON FUNCTION %s TO schedo_server', oid::regprocedure)
FROM pg_proc WHERE pronamespace = to_regnamespace(quote_ident(:'schema')) AND NOT prosecdef
    AND proname <> 'next_inbox_id' \gexec

SELECT format('GRANT EXECUTE ON FUNCTION %s TO schedo_enqueue', oid::regprocedure)
FROM pg_proc WHERE pronamespace = to_regnamespace(quote_ident(:'schema')) AND proname LIKE 'enqueue%' \gexec

COMMIT;
