-- throttling: when the hardware held an engine back, by core and kind, from the table Throttle.
--
-- Parameters: as of executions(); periods that begin in the range (of a step by its times).
-- Columns:
--   core         physical core (-1 unknown);  kind: as recorded
--   periods      how many;  time_ns: their durations added up
--   limit_share  utilization allowed meanwhile, k of n cycles: the average over time, weighted by duration
--   first_ts, last_ts  start of the first and end of the last period
--   share        time_ns of the range's span, as far as anything was recorded in it
CREATE OR REPLACE MACRO throttling(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH bounds AS (
    SELECT greatest(range_start, first_ts) AS low, least(range_end, last_ts) AS high
    FROM (SELECT min(start_ts) AS first_ts, max(end_ts) AS last_ts FROM Slice) WHERE range_step < 0
    UNION ALL
    SELECT first_ts, last_ts FROM (SELECT min(start_ts) AS first_ts, max(end_ts) AS last_ts FROM Step WHERE number = range_step)
    WHERE range_step >= 0 AND first_ts IS NOT NULL
)
SELECT coalesce(pcore_idx, -1) AS core, coalesce("type", 'unknown') AS kind, count(*) AS periods, sum(duration)::BIGINT AS time_ns,
       sum(duration * k / nullif(n, 0)) / nullif(sum(duration), 0) AS limit_share, min("timestamp") AS first_ts,
       max("timestamp" + duration) AS last_ts, time_ns / nullif(any_value(high - low), 0) AS share
FROM Throttle, bounds
WHERE "timestamp" >= low AND "timestamp" < high AND duration IS NOT NULL
GROUP BY core, kind
ORDER BY time_ns DESC, core, kind;
