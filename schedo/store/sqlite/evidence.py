"""The statements that write the attempts and the outputs of jobs."""

from __future__ import annotations

from schedo.core import limits
from schedo.store.rows import ATTEMPT

# A late result may belong to a pruned job; its record would never be deleted. A job that the same
# commit writes is there, perhaps in the write buffer only.
INSERT_ATTEMPT = f"""
INSERT INTO attempt (number, {", ".join(ATTEMPT.names)})
SELECT (SELECT coalesce(max(number), 0) + 1 FROM attempt WHERE job_id = :job_id),
    {", ".join(f":{name}" for name in ATTEMPT.names)}
WHERE :has_job OR EXISTS (SELECT 1 FROM job WHERE id = :job_id)"""
TRIM_ATTEMPTS = f"""
DELETE FROM attempt WHERE job_id = :id
AND number <= (SELECT max(number) FROM attempt WHERE job_id = :id) - {limits.ATTEMPTS_MAX}"""

INSERT_OUTPUT = """
INSERT OR REPLACE INTO output (job_id, attempt, stream, head, tail, total_bytes)
SELECT :job_id, :attempt, :stream, :head, :tail, :total_bytes
WHERE :has_job OR EXISTS (SELECT 1 FROM job WHERE id = :job_id)"""
# The sum runs back from the latest attempt. The streams of an attempt are deleted together.
TRIM_OUTPUTS = f"""
DELETE FROM output WHERE job_id = :id AND attempt <= (
    SELECT max(attempt) FROM (
        SELECT attempt, sum(length(head) + length(tail)) OVER (ORDER BY attempt DESC) AS total
        FROM output WHERE job_id = :id
    ) WHERE total > {limits.OUTPUTS_BYTES_MAX}
)"""
