-- work_by: device work of a range, summed by one of its attributes.
--
-- Parameters: as of executions(), and
--   attribute  'operator', 'kernel' (name of the kernel or executable), 'module', 'region' (record_function ranges),
--              'source' (line), 'stack' (Python frames), 'step', 'rank', 'device' or 'category' (see executions)
-- Columns:
--   name            the attribute's value; (unlinked) where an execution has none
--   executions      executions of compiled programs or kernels;  copies: memory copies and fills
--   device_time_ns  sum of executions, no gaps
--   launch_ns, program_ns  parts of it; NULL when the source has no such split
--   estimated_ns    part that rests on an estimate;  bound_ns: part of program_ns that depends on data (see operators)
--   shortest_ns, median_ns, longest_ns  of one execution or copy
--   share           of the device time of the range
--   first_event     id of its first device event
CREATE OR REPLACE MACRO work_by(
    attribute, range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH work AS (
    SELECT CASE attribute WHEN 'kernel' THEN name WHEN 'module' THEN module_path WHEN 'region' THEN region
                          WHEN 'source' THEN source WHEN 'stack' THEN stack WHEN 'category' THEN category
                          WHEN 'step' THEN CASE WHEN step >= 0 THEN 'step ' || step ELSE '' END
                          WHEN 'rank' THEN CASE WHEN rank >= 0 THEN 'rank ' || rank ELSE '' END
                          WHEN 'device' THEN CASE WHEN rank >= 0 THEN 'rank ' || rank || ' ' ELSE '' END || 'device ' || device
                          ELSE op END AS label, *
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
)
SELECT CASE WHEN label = '' OR label IS NULL THEN '(unlinked)' ELSE label END AS name,
       count(*) FILTER (kind = 'exec') AS executions,
       count(*) FILTER (kind <> 'exec') AS copies,
       sum(device_part)::BIGINT AS device_time_ns,
       CASE WHEN bool_or(split) THEN sum(launch_part)::BIGINT END AS launch_ns,
       CASE WHEN bool_or(split) THEN sum(work_part)::BIGINT END AS program_ns,
       sum(estimated_ns)::BIGINT AS estimated_ns,
       coalesce(sum(work_part) FILTER (provenance = 'bound'), 0)::BIGINT AS bound_ns,
       min(duration_ns) AS shortest_ns,
       quantile_disc(duration_ns, 0.5) AS median_ns,
       max(duration_ns) AS longest_ns,
       sum(device_part) / nullif(sum(sum(device_part)) OVER (), 0) AS share,
       arg_min(event_id, start_ts) AS first_event
FROM work
GROUP BY 1
ORDER BY device_time_ns DESC, name;
