-- launches: the host calls that launched device work, by the call's name.
--
-- Parameters: as of executions(); the calls are those of the range's executions.
-- Columns:
--   name         the call (cudaLaunchKernel, cudaGraphLaunch, nrta_execute_schedule, …)
--   calls        how many;  executions: pieces of device work they launched (a graph launch has many)
--   call_ns      durations of the calls added up, on the host
--   call_median_ns, call_p95_ns          of one call
--   delay_median_ns, delay_p95_ns        from the start of the call to that of its work on the device
--   executions_shorter_than_call         pieces that take less time than the call that launched them: launch-bound
--   device_time_ns                       of the executions
--   share        call_ns of the host time of all launch calls
CREATE OR REPLACE MACRO launches(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH work AS (
    SELECT event_id, start_ts, duration_ns, device_part, launch_ts
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
), links AS (
    SELECT work.*, in_id AS call_id
    FROM work JOIN Flow ON out_id = work.event_id AND dependency_type IN ('launch', 'execution')
), calls AS (
    SELECT id, name, start_ts AS call_ts, duration_ns AS call_ns FROM SystemProfileEvents
    -- The calls lie between the first launch and the last start; lets row groups be skipped.
    WHERE start_ts >= (SELECT min(CASE WHEN launch_ts >= 0 THEN launch_ts ELSE range_start END) FROM work)
      AND start_ts <= (SELECT max(start_ts) FROM work)
      AND name NOT LIKE 'ProfilerStep#%'
), pieces AS (
    SELECT calls.name, call_id, calls.call_ns, links.start_ts - call_ts AS delay, links.duration_ns, links.device_part
    FROM links JOIN calls ON calls.id = call_id
), per_call AS (
    SELECT name, call_id, any_value(call_ns) AS call_ns, count(*) AS executions, min(delay) AS delay,
           count(*) FILTER (duration_ns < call_ns) AS shorter, sum(device_part) AS device_part
    FROM pieces GROUP BY name, call_id
)
SELECT name, count(*) AS calls, sum(executions)::BIGINT AS executions, sum(call_ns)::BIGINT AS call_ns,
       quantile_disc(call_ns, 0.5) AS call_median_ns, quantile_disc(call_ns, 0.95) AS call_p95_ns,
       quantile_disc(delay, 0.5) AS delay_median_ns, quantile_disc(delay, 0.95) AS delay_p95_ns,
       sum(shorter)::BIGINT AS executions_shorter_than_call, sum(device_part)::BIGINT AS device_time_ns,
       sum(call_ns)::BIGINT / nullif(sum(sum(call_ns)) OVER (), 0) AS share
FROM per_call GROUP BY name
ORDER BY call_ns DESC, name;
