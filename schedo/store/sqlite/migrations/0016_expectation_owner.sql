-- schedo: reads_from=15 time=constant
-- What declares a named expectation: a file, or "api" if a client put it by hand.
ALTER TABLE expectation ADD COLUMN owner TEXT NOT NULL DEFAULT 'api';
