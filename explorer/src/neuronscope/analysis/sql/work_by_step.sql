-- work_by_step: the figures of every step, one row each: the samples of a comparison.
--
-- A step's work is what was launched in it, wherever the device got round to it. Executions that name no step are left
-- out (a profile without steps has no row here).
--
-- Columns:
--   step            number
--   executions, copies, device_time_ns, launch_ns, program_ns, estimated_ns, bytes_moved  as in totals()
--   span_ns         first start to last end;  busy_ns: union of all executions;  gaps_ns = span_ns - busy_ns
CREATE OR REPLACE MACRO work_by_step() AS TABLE
WITH marked AS (
    SELECT *, max(end_ts) OVER (
               PARTITION BY step ORDER BY start_ts, execution_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS reach
    FROM executions()
    WHERE step >= 0
)
SELECT step,
       count(*) FILTER (kind = 'exec') AS executions,
       count(*) FILTER (kind <> 'exec') AS copies,
       sum(device_part)::BIGINT AS device_time_ns,
       CASE WHEN bool_or(split) THEN sum(launch_part)::BIGINT END AS launch_ns,
       CASE WHEN bool_or(split) THEN sum(work_part)::BIGINT END AS program_ns,
       sum(estimated_ns)::BIGINT AS estimated_ns,
       CASE WHEN bool_and(bytes_read >= 0 AND bytes_written >= 0) FILTER (kind = 'exec')
            THEN sum(bytes_read + bytes_written) FILTER (kind = 'exec')::BIGINT END AS bytes_moved,
       max(end_ts) - min(start_ts) AS span_ns,
       sum(greatest(end_ts - greatest(start_ts, coalesce(reach, start_ts)), 0))::BIGINT AS busy_ns,
       span_ns - busy_ns AS gaps_ns
FROM marked
GROUP BY step
ORDER BY step;
