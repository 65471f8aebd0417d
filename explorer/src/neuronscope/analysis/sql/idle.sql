-- idle: the time inside the span of the range in which no device work ran, one row per interval.
--
-- Parameters: as of executions().
-- Columns:
--   start_ts, end_ts, duration_ns  the interval
--   cause           gap_cause of the execution that ends it
--   next_execution, next_event     that execution and its event
CREATE OR REPLACE MACRO idle(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH islands AS (
    SELECT lag(end_ts) OVER (ORDER BY start_ts) AS idle_start, start_ts AS idle_end, first_execution
    FROM busy(range_start := range_start, range_end := range_end, range_step := range_step)
)
SELECT idle_start AS start_ts, idle_end AS end_ts, idle_end - idle_start AS duration_ns,
       CASE WHEN gap_cause IN ('', 'first') THEN 'unknown' ELSE gap_cause END AS cause,
       execution_id AS next_execution, event_id AS next_event
FROM islands JOIN Execution ON execution_id = first_execution
WHERE idle_start IS NOT NULL
ORDER BY idle_start;
