-- Since when a queue is paused, why, and until when, as JSON; NULL if it is not paused, or was paused by an earlier version.
ALTER TABLE queue ADD COLUMN pause TEXT;
