-- operators: one row per operator name with its calls on the host and the device time attributed to it.
--
-- Device time is a sum of executions (kernels and copies) by the innermost operator that launched them, as in torch's
-- "self device time"; it contains no gaps. Time that no operator claims is the row (unlinked).
--
-- Parameters: as of executions().
-- Columns:
--   name            operator as torch prints it, or (unlinked)
--   calls           calls on the host in the range, counted as torch does (see host_ops)
--   self_cpu_ns     host time of those calls without enclosed calls
--   device_time_ns  sum of executions; host copies of an emulated session have none (see executions)
--   executions      executions of compiled programs or kernels
--   copies          memory copies and fills
--   launch_ns       part that is fixed launch cost; NULL when the source has no such split
--   program_ns      part that is engine and DMA time; NULL likewise
--   estimated_ns    part of device_time_ns that rests on an estimate
--   bound_ns        part of program_ns of programs whose time depends on data (an index by data), timed at its bound:
--                   as if all indices were distinct
--   share           of the device time of the whole range; NULL without device time
--   first_event     id of its first device event, else of its first call
CREATE OR REPLACE MACRO operators(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH device AS (
    SELECT CASE WHEN op = '' THEN '(unlinked)' ELSE op END AS name,
           sum(device_part)::BIGINT AS device_time_ns,
           count(*) FILTER (kind = 'exec') AS executions,
           count(*) FILTER (kind <> 'exec') AS copies,
           bool_or(split) AS split,
           sum(launch_part)::BIGINT AS launch_ns,
           sum(work_part)::BIGINT AS program_ns,
           sum(estimated_ns)::BIGINT AS estimated_ns,
           coalesce(sum(work_part) FILTER (provenance = 'bound'), 0)::BIGINT AS bound_ns,
           arg_min(event_id, start_ts) AS first_event
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
    GROUP BY ALL
), host AS (
    SELECT name, count(*) FILTER (counted) AS calls, sum(self_cpu_ns)::BIGINT AS self_cpu_ns, arg_min(event_id, start_ts) AS first_event
    FROM host_ops(range_start := range_start, range_end := range_end, range_step := range_step)
    GROUP BY ALL
)
SELECT coalesce(device.name, host.name) AS name,
       coalesce(calls, 0) AS calls,
       coalesce(self_cpu_ns, 0) AS self_cpu_ns,
       coalesce(device_time_ns, 0) AS device_time_ns,
       coalesce(executions, 0) AS executions,
       coalesce(copies, 0) AS copies,
       CASE WHEN split THEN launch_ns END AS launch_ns,
       CASE WHEN split THEN program_ns END AS program_ns,
       coalesce(estimated_ns, 0) AS estimated_ns,
       coalesce(bound_ns, 0) AS bound_ns,
       device_time_ns / nullif(sum(device_time_ns) OVER (), 0) AS share,
       coalesce(device.first_event, host.first_event) AS first_event
FROM device FULL JOIN host USING (name)
ORDER BY device_time_ns DESC, self_cpu_ns DESC, name;
