-- busy: when any device work ran in the range, as a union of intervals; overlapping executions count once. A host copy
-- of a neuron device is no device work (see executions).
--
-- Parameters: as of executions(), and
--   work_only  true: without the launch parts, that is only engines and DMA (kernels and copies whole)
-- Columns: start_ts, end_ts (ns): disjoint intervals in order; first_execution: the one that begins each.
CREATE OR REPLACE MACRO busy(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1, work_only := false
) AS TABLE
WITH pieces AS (
    SELECT CASE WHEN work_only THEN start_ts + launch_part ELSE start_ts END AS start_ts, end_ts, execution_id
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
    WHERE kind <> 'host_copy'
), marked AS (
    -- How far the work that began before reaches; a running sum with FILTER instead would be quadratic in DuckDB 2.0.
    SELECT *, max(end_ts) OVER (ORDER BY start_ts, execution_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
    FROM pieces
)
SELECT start_ts,
       coalesce(lead(reach) OVER (ORDER BY start_ts, execution_id), (SELECT max(end_ts) FROM pieces)) AS end_ts,
       execution_id AS first_execution
FROM marked
WHERE reach IS NULL OR start_ts > reach;
