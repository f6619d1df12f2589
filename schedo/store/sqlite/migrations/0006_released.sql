-- The worker protocol calls the outcome of an attempt that was given back unrun "released".

UPDATE attempt SET outcome = 'released' WHERE outcome = 'handed_back';
