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
WITH marked AS ( -- as in busy(), with what is told about the execution that ends the pause
    SELECT execution_id, event_id, gap_cause, start_ts AS idle_end,
           max(end_ts) OVER (ORDER BY start_ts, execution_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS idle_start
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
    WHERE kind <> 'host_copy'
)
SELECT idle_start AS start_ts, idle_end AS end_ts, idle_end - idle_start AS duration_ns,
       CASE WHEN gap_cause IN ('', 'first') THEN 'unknown' ELSE gap_cause END AS cause,
       execution_id AS next_execution, event_id AS next_event
FROM marked
WHERE idle_end > idle_start;
