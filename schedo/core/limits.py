"""Every limit, named once, with its unit in the name.

A limit that a user may meet is quoted in the error that reports it and in docs/api.md.
"""

from __future__ import annotations

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

# What a column of a store takes.
INTEGER_MAX = 2**63 - 1

# Instants. The upper end is what RFC 3339 can write (four-digit years).
INSTANT_MIN = 0
INSTANT_MAX = 253_402_300_799 * SECOND  # 9999-12-31T23:59:59Z
DURATION_MAX = 100 * 366 * DAY

COUNT_MAX = 2**53 - 1  # the largest whole number that every reader of JSON keeps exactly

# Names and texts.
NAME_CHARACTERS_MAX = 128
UNIQUE_KEY_CHARACTERS_MAX = 255
TAGS_MAX = 20
META_BYTES_MAX = 4_096
CRON_CHARACTERS_MAX = 256

# Jobs.
PAYLOAD_BYTES_MAX = 1_048_576
RESULT_BYTES_MAX = 1_048_576
ERROR_BYTES_MAX = 16_384
PRIORITY_MIN = -9
PRIORITY_MAX = 9
ATTEMPTS_MAX = 100
LOSSES_MAX = 3  # SEMANTICS: a job that kills its worker three times is a poison pill
BATCH_JOBS_MAX = 1_000
OUTPUT_BYTES_MAX = 1_048_576  # per stream and attempt: the first half and the last half are kept
OUTPUTS_BYTES_MAX = 8_388_608  # per job, over all attempts

# Schedules and queues.
CATCHUP_RUNS_MAX = 1_000
MISSED_COUNT_MAX = 10_000
ACTIVE_RUNS_KNOWN_MAX = 1_000  # a schedule's unfinished runs known by id; allow can make more
DECISIONS_KEPT = 100  # Dkron's number
QUEUE_CONCURRENCY_MAX = 100_000
FIRES_SHOWN = 5

# A schedule that fires again so soon stays in memory.
FREQUENT_US = 10 * SECOND

# A fire later than this was missed, not just late (Quartz's threshold).
LATE_FIRE_US = 60 * SECOND

# Defaults.
PRIORITY_STEP_US = MINUTE
CATCHUP_WINDOW_US = DAY
CATCHUP_MAX = 100
DEFAULT_QUEUE = "default"

# Memory: how many entries each order keeps, and how large a payload may wait in memory.
WINDOW_ENTRIES = 1_024
PAGE_ENTRIES_MAX = 256
# What has been due so long and is still not in memory is moved in bulk, beside what comes due next.
BACKLOG_AGE_US = 20 * MILLISECOND
# So many after one commit. Rows of one instant and one queue lie together and take 3 us each; those
# spread over a large file take twenty times as long. Then fewer are moved, because commits wait.
PROMOTED_MIN = 32
PROMOTED_MAX = 1_000
PROMOTING_US = 8 * MILLISECOND
# A burst of queued jobs up to this many, in all lanes together, never has to be read back.
READY_ENTRIES_MAX = 8_192
READY_PAGES_MAX = 8  # loaded after one commit
SUSPECTS_MAX = 1_000_000  # never reached: they are what workers held when they died
PAYLOAD_INLINE_BYTES_MAX = 4_096
UNCOMMITTED_JOBS_MAX = 50_000
UNCOMMITTED_PAYLOAD_BYTES_MAX = 67_108_864

# A lost or handed back job goes before all others of its lane: further than any priority reaches.
REQUEUE_BOOST_US = 366 * DAY

# One turn handles at most this many due entries, so that the loop stays responsive: some 5 ms. A
# schedule's fire costs ten times as much as a job's.
TURN_ENTRIES_MAX = 512
TURN_COMMANDS_US = 4 * MILLISECOND  # after which no other command begins to act
TURN_FIRES_MAX = 50
# And one commit, so that who submits meanwhile does not wait long for the commit before his.
COMMIT_FIRES_MAX = 200

# Memory that clients of the HTTP API can make the server hold, all connections together: heads that
# have not come whole, requests that are sent ahead, answers that are not read.
WAITING_BYTES_MAX = 8_388_608
# And bodies of requests, from their first byte until they are carried out: of bodies up to the
# first number of bytes, so many bytes at a time. Smaller ones that come at once are not counted.
BODY_BYTES_UNCOUNTED = 4_096
BODY_ROOMS = ((65_536, 4_194_304), (1_048_576, 4_194_304), (8_388_608, 8_388_608))
LARGE_READS_MAX = 4  # reads of jobs and their outputs that are rendered at a time
