-- totals: the range in one row. span = launch_in_span + work_in_span + gaps, exactly.
--
-- Each nanosecond of the span goes to one term: engines and DMA (any program part runs), else launches (any launch part
-- runs), else gaps (no device works). Without overlap the terms equal the sums of the executions' parts. Host copies of a
-- neuron device are the runtime's work: they are in copies and copies_ns only, and the core is idle meanwhile.
--
-- Parameters: as of executions().
-- Columns (ns, bytes):
--   executions      executions of compiled programs or kernels;  copies: memory copies and fills
--   devices         how many devices (process and device number) the range's work ran on
--   device_time_ns  sum of all durations but of host copies (see executions)
--   exec_ns, copies_ns  durations of programs and kernels, and of copies and fills
--   launch_ns, program_ns, estimated_ns  parts of device_time_ns (sums)
--   bound_ns        part of program_ns of programs some of whose time depends on data: simulated for distinct indices
--   split           any execution of the range tells its launch cost
--   first_ts, last_ts, span_ns  first start to last end
--   busy_ns         union of all executions
--   launch_in_span, work_in_span, gaps_ns  the terms;  gaps: how many idle intervals
--   bytes_moved     device memory bytes read and written; NULL when any execution of a program or kernel doesn't say
--   flops           likewise
CREATE OR REPLACE MACRO totals(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH sums AS (
    SELECT count(*) FILTER (kind = 'exec') AS executions,
           count(*) FILTER (kind <> 'exec') AS copies,
           count(DISTINCT (process_id, device)) AS devices,
           coalesce(sum(device_part), 0)::BIGINT AS device_time_ns,
           coalesce(sum(duration_ns) FILTER (kind = 'exec'), 0)::BIGINT AS exec_ns,
           coalesce(sum(duration_ns) FILTER (kind <> 'exec'), 0)::BIGINT AS copies_ns,
           coalesce(sum(launch_part), 0)::BIGINT AS launch_ns,
           coalesce(sum(work_part), 0)::BIGINT AS program_ns,
           coalesce(sum(estimated_ns), 0)::BIGINT AS estimated_ns,
           coalesce(sum(work_part) FILTER (provenance = 'bound'), 0)::BIGINT AS bound_ns,
           coalesce(bool_or(split), false) AS split,
           coalesce(max(launch_part), 0) > 0 AS launches,
           min(start_ts) FILTER (kind <> 'host_copy') AS first_ts,
           max(end_ts) FILTER (kind <> 'host_copy') AS last_ts,
           coalesce(max(end_ts) FILTER (kind <> 'host_copy') - min(start_ts) FILTER (kind <> 'host_copy'), 0) AS span_ns,
           CASE WHEN bool_and(bytes_read >= 0 AND bytes_written >= 0) FILTER (kind = 'exec')
                THEN sum(bytes_read + bytes_written) FILTER (kind = 'exec')::BIGINT END AS bytes_moved,
           CASE WHEN bool_and(flops >= 0) FILTER (kind = 'exec')
                THEN sum(flops) FILTER (kind = 'exec')::BIGINT END AS flops
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
), all_busy AS (
    SELECT coalesce(sum(end_ts - start_ts), 0)::BIGINT AS busy_ns, greatest(count(*) - 1, 0) AS gaps
    FROM busy(range_start := range_start, range_end := range_end, range_step := range_step)
), pieces AS ( -- without any launch part it is all_busy: an empty union costs nothing
    SELECT start_ts + launch_part AS s, end_ts AS e, execution_id
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
    WHERE kind <> 'host_copy' AND (SELECT launches FROM sums)
), marked AS (
    SELECT s, e, max(e) OVER (ORDER BY s, execution_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach FROM pieces
), work_busy AS (
    SELECT CASE WHEN (SELECT launches FROM sums)
                THEN coalesce(sum(greatest(e - greatest(s, coalesce(reach, s)), 0)), 0)::BIGINT
                ELSE (SELECT busy_ns FROM all_busy) END AS work_in_span
    FROM marked
)
SELECT sums.* EXCLUDE (launches), busy_ns, gaps, busy_ns - work_in_span AS launch_in_span, work_in_span,
       span_ns - busy_ns AS gaps_ns
FROM sums, all_busy, work_busy;
