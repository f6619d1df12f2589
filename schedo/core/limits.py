"""The limits, each defined once, with the unit in its name.

Errors and docs/api.md quote the limits that a user can reach.
"""

from __future__ import annotations

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

# The largest integer of a database column.
INTEGER_MAX = 2**63 - 1

# Instants. The upper end is what RFC 3339 can write (four-digit years).
INSTANT_MIN = 0
INSTANT_MAX = 253_402_300_799 * SECOND  # 9999-12-31T23:59:59Z
# Fires are listed up to here: a day later is before the year 10000 in every zone.
LISTED_FIRE_MAX = INSTANT_MAX - 2 * DAY
DURATION_MAX = 100 * 366 * DAY

COUNT_MAX = 2**53 - 1  # the largest whole number that every reader of JSON keeps exactly

# Names and texts.
NAME_CHARACTERS_MAX = 128
UNIQUE_KEY_CHARACTERS_MAX = 255
TAGS_MAX = 20
META_BYTES_MAX = 4_096
EVENT_JOB_BYTES_MAX = 4_096  # of the job that an event makes, with its payload, without the facts
CRON_CHARACTERS_MAX = 256

# Jobs.
PAYLOAD_BYTES_MAX = 1_048_576
ENQUEUED_BYTES_MAX = PAYLOAD_BYTES_MAX + 262_144  # of a row of the inbox: all other fields, too
RESULT_BYTES_MAX = 1_048_576
ERROR_BYTES_MAX = 16_384
PRIORITY_MIN = -9
PRIORITY_MAX = 9
ATTEMPTS_MAX = 100
LOSSES_MAX = 3  # SEMANTICS: a job that kills its worker three times is a poison pill
BATCH_JOBS_MAX = 1_000
BATCH_BYTES_MAX = 8_388_608  # of the body with a batch
DECLARED_MAX = 5_000  # schedules or queues of one declaration
OUTPUT_BYTES_MAX = 1_048_576  # per stream and attempt: the first half and the last half are kept
OUTPUTS_BYTES_MAX = 8_388_608  # per job, over all attempts

# Schedules and queues.
CATCHUP_RUNS_MAX = 1_000
MISSED_COUNT_MAX = 10_000
ACTIVE_RUNS_KNOWN_MAX = 1_000  # per schedule; with `overlap: allow` there can be more
# Decisions of a schedule: the latest ones, and more of them if they are not older than that.
DECISIONS_KEPT_MIN = 100  # Dkron's number
DECISIONS_KEPT = 1_000
DECISIONS_KEPT_US = 30 * DAY
RUNS_KEPT_MAX = 10_000  # ended runs of a schedule that stay whatever their age is
LAST_RUNS_MAX = 20  # per schedule: how each of them ended, and how long it took
LAST_FAILURE_TYPE_CHARACTERS_MAX = 100  # of a schedule's last failure
LAST_FAILURE_CHARACTERS_MAX = 500
SCHEDULES_MEASURED_MAX = 200  # schedules with metrics of their own
SCHEDULES_COUNTED_MAX = 1_000  # in each health
# All expectations are in memory; each can have two event jobs. A bound for a server of 1,000.
EXPECTATIONS_MAX = 1_000
EARLY_RUNS_KEPT = 100  # completed runs after an instant that still waits for its own
QUEUE_CONCURRENCY_MAX = 100_000
FIRES_SHOWN = 5
FIRES_LISTED_MAX = 500  # of a range of time

# A schedule that fires again within this time stays in memory.
FREQUENT_US = 10 * SECOND

# A fire that is so late is missed (the threshold of Quartz).
LATE_FIRE_US = 60 * SECOND

# Defaults.
PRIORITY_STEP_US = MINUTE
CATCHUP_WINDOW_US = DAY
CATCHUP_MAX = 100
DEFAULT_QUEUE = "default"

# Memory: the entries of a paged index, and the size of payloads that may stay in memory.
WINDOW_ENTRIES = 1_024
PAGE_ENTRIES_MAX = 256
FIRST_PAGE_ENTRIES = 32  # after a start, whose first job waits for this page
BLOCKED_PAGE = 100  # blocked runs, each with its schedule, while commits wait: 3 ms
# Entries that are overdue for this long and not in memory become the backlog, moved in bulk.
BACKLOG_AGE_US = 20 * MILLISECOND
# Jobs of a backlog that are moved after one commit. Adjacent rows, of one instant and queue, take
# 3 us each. Rows that are spread over a large file take twenty times as long; then fewer are moved,
# because commits wait for them.
PROMOTED_MIN = 32
PROMOTED_MAX = 1_000
PROMOTING_US = 8 * MILLISECOND
# Ended jobs that one step of pruning deletes, and the time that it may take.
PRUNED_MIN = 32
PRUNED_MAX = 500
PRUNING_US = 5 * MILLISECOND
# A burst of queued jobs up to this number, in all ready indexes together, is never read back.
READY_ENTRIES_MAX = 8_192
# Ready indexes that load a page after one commit, and the entries of these pages.
READY_PAGES_MAX = 64
READY_PAGED_MAX = 8 * PAGE_ENTRIES_MAX
# The pages of a ready index that runs dry while it waits for them: their entries, and the bytes of
# their payloads. The largest page takes 3 ms.
READY_PAGE_MAX = 4 * PAGE_ENTRIES_MAX
READY_PAGE_BYTES_MAX = 1_048_576
SUSPECTS_MAX = 1_000_000  # never reached: at most the attempts that workers held when they died
PAYLOAD_INLINE_BYTES_MAX = 4_096
# The payloads of the schedules that fire soonest. Those of a page of schedules, and of the
# schedules that let the next page be loaded, take a fourth of it: a loaded page always fits.
SCHEDULE_PAYLOADS_BYTES_MAX = 8_388_608
SCHEDULE_PAGE_PAYLOADS_BYTES_MAX = SCHEDULE_PAYLOADS_BYTES_MAX // 4
PAYLOAD_PAUSE_US = SECOND  # before a payload that could not be read is read again
UNCOMMITTED_JOBS_MAX = 50_000
UNCOMMITTED_PAYLOAD_BYTES_MAX = 67_108_864

# Operations on many jobs.
BULK_ACTIVE_MAX = 20  # at a time
BULK_ENDED_KEPT = 100
BULK_ERRORS_KEPT = 10  # of each operation
BULK_FAILURES_MAX = 5  # failed steps in a row, until the operation has failed
BULK_STEP_JOBS = 50  # that change in one commit
BULK_STEP_JOBS_MAX = 200  # on a busy machine

# A requeued job goes ahead of all others of its ready key. No priority reaches this far.
REQUEUE_BOOST_US = 366 * DAY

# One turn handles at most this number of due entries, about 5 ms, so that the loop stays
# responsive. A fire of a schedule costs ten times as much as a due job.
TURN_ENTRIES_MAX = 512
TURN_COMMANDS_US = 4 * MILLISECOND  # after this time, the turn starts no further command
TURN_FIRES_MAX = 50
# Fires of one commit: a client that submits meanwhile must wait for this commit before its own.
COMMIT_FIRES_MAX = 200

# All bytes in flight between the HTTP server and its clients, in and out, of all connections.
BYTES_IN_FLIGHT_MAX = 25_165_824
# The part of it that large bodies and responses claim beforehand: pairs of the largest
# claim of a class and the share of the class. The rest is for what connections hold anyway: heads,
# small bodies, what clients send ahead, small responses that they do not read.
CLAIMED_BYTES = ((65_536, 4_194_304), (1_048_576, 4_194_304), (8_388_608, 8_388_608))
SMALL_BODY_BYTES_MAX = 4_096  # a body up to this size is not claimed
# The leases of one response to a poll, with their payloads; the others wait for the next poll.
LEASES_BYTES_MAX = 4_194_304
# How long a server of a cluster may be silent before the others take its jobs over.
FAILOVER_TIMEOUT_US = 300_000
