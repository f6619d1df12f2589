-- schedo: reads_from=3
-- A delay of more than 31 years has more digits of microseconds than a server reads, and the names . and .. are refused by
-- it. Only these lines of the function change, so its privileges and settings stay.
DO $$
DECLARE
    changes CONSTANT text[] := ARRAY[
        ['round(extract(epoch FROM delay) * 1000000)::bigint || ''us''', 'round(extract(epoch FROM delay), 6) || ''s'''],
        ['''^[A-Za-z0-9._][A-Za-z0-9._-]{0,127}$''', '''^(?!\.{1,2}$)[A-Za-z0-9._][A-Za-z0-9._-]{0,127}$'''],
        ['underscores and hyphens''', 'underscores and hyphens, no hyphen first, and is not . or .. alone''']
    ];
    definition text := pg_get_functiondef('enqueue'::regproc);
    change text[];
BEGIN
    FOREACH change SLICE 1 IN ARRAY changes LOOP
        ASSERT position(change[1] IN definition) > 0 OR position(change[2] IN definition) > 0;  -- it may be repeated
        definition := replace(definition, change[1], change[2]);
    END LOOP;
    EXECUTE definition;
END $$;
