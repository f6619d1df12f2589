-- What declares each schedule, and the spec that it declared if the schedule was changed by hand since. No index
-- reads them: every fire would pay for it, and only starts and prunes ask for the schedules of an owner.
ALTER TABLE schedule ADD COLUMN owner TEXT NOT NULL DEFAULT 'api';
ALTER TABLE schedule ADD COLUMN declared TEXT;
