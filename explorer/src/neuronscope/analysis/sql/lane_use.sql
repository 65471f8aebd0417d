-- lane_use: how busy each track of the timeline was.
--
-- Parameters: as of executions(); slices that overlap the time range, cut to it (range_step is taken by the step's times).
-- Columns:
--   track_id, label, kind, rank   of the table Track
--   slices       how many;  sum_ns: their time added up (nested ones count again)
--   busy_ns      when at least one was open (union);  share = busy_ns / span_ns
--   span_ns      of the range, as far as anything was recorded in it
CREATE OR REPLACE MACRO lane_use(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH bounds AS MATERIALIZED (
    SELECT greatest(range_start, first_ts) AS low, least(range_end, last_ts) AS high
    FROM (SELECT min(start_ts) AS first_ts, max(end_ts) AS last_ts FROM Slice) WHERE range_step < 0
    UNION ALL
    SELECT first_ts, last_ts FROM (SELECT min(start_ts) AS first_ts, max(end_ts) AS last_ts FROM Step WHERE number = range_step)
    WHERE range_step >= 0 AND first_ts IS NOT NULL
), cut AS (
    SELECT track_id, lane, greatest(start_ts, low) AS s, least(end_ts, high) AS e
    FROM Slice, bounds WHERE end_ts > low AND start_ts < high
), counted AS (
    SELECT track_id, count(*) AS slices, sum(e - s)::BIGINT AS sum_ns FROM cut GROUP BY track_id
), reached AS (
    -- Host tracks nest, so that their outermost lane is the union; other tracks have lanes that run side by side.
    SELECT track_id, s, e,
           max(e) OVER (PARTITION BY track_id ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
    FROM cut JOIN Track USING (track_id) WHERE lane = 0 OR kind NOT IN ('framework', 'runtime')
), unions AS (
    SELECT track_id, sum(greatest(e - greatest(s, coalesce(reach, s)), 0))::BIGINT AS busy_ns FROM reached GROUP BY track_id
)
SELECT track_id, label, kind, rank, slices, sum_ns, busy_ns, busy_ns / nullif(high - low, 0) AS share, high - low AS span_ns
FROM counted JOIN unions USING (track_id) JOIN Track USING (track_id), bounds
ORDER BY track_id;
