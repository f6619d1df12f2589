-- The outcome of an attempt that a worker did not run is now "released".

UPDATE attempt SET outcome = 'released' WHERE outcome = 'handed_back';
