-- operator_tree: operator calls by their path of enclosing calls, with host time and the device time launched below them.
--
-- Parameters: as of executions(); calls by their start on the host, device work of the same range.
-- Columns:
--   path             the operator calls from the outermost in: ['aten::linear', 'aten::addmm']; ['(unlinked)'] for work
--                    that no operator claims
--   depth            length of the path;  name: its last operator
--   calls            calls with this path (a call that only forwards to one of its own name is a level of its own)
--   cpu_ns           their host time, enclosed calls included;  self_cpu_ns: without
--   device_time_ns   device time launched in them or in calls below;  self_device_ns: in them
--   share            device_time_ns of the range's device time (of top-level cpu_ns without any)
CREATE OR REPLACE MACRO operator_tree(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH RECURSIVE selected AS MATERIALIZED (
    SELECT event_id, parent_id, name, end_ts - start_ts AS cpu, self_cpu_ns FROM HostOp
    WHERE CASE WHEN range_step >= 0 AND step >= 0 THEN step = range_step
               ELSE start_ts >= range_start AND start_ts < range_end END
      AND (range_step < 0 OR step IN (range_step, -1))
), calls AS (
    SELECT event_id, [name] AS path, cpu, self_cpu_ns FROM selected
    WHERE parent_id < 0 OR parent_id NOT IN (SELECT event_id FROM selected)
    UNION ALL
    SELECT selected.event_id, list_append(calls.path, selected.name), selected.cpu, selected.self_cpu_ns
    FROM selected JOIN calls ON selected.parent_id = calls.event_id
), device AS (
    SELECT coalesce(calls.path, CASE WHEN op = '' THEN ['(unlinked)'] ELSE [op] END) AS path, sum(device_part) AS ns
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step) AS work
    LEFT JOIN calls ON calls.event_id = work.op_event_id
    GROUP BY 1
), host AS (
    SELECT path, count(*) AS calls, sum(cpu) AS cpu, sum(self_cpu_ns) AS self_cpu FROM calls GROUP BY path
), below AS (
    SELECT path[1:depth] AS path, sum(ns) AS ns
    FROM (SELECT path, ns, unnest(range(1, len(path) + 1)) AS depth FROM device) GROUP BY 1
), whole AS (
    SELECT (SELECT sum(ns) FROM device) AS device_ns, (SELECT sum(cpu) FROM host WHERE len(path) = 1) AS cpu_ns
)
SELECT path, len(path) AS depth, path[-1] AS name, coalesce(calls, 0) AS calls, coalesce(cpu, 0)::BIGINT AS cpu_ns,
       coalesce(self_cpu, 0)::BIGINT AS self_cpu_ns, coalesce(below.ns, 0)::BIGINT AS device_time_ns,
       coalesce(device.ns, 0)::BIGINT AS self_device_ns,
       CASE WHEN whole.device_ns > 0 THEN coalesce(below.ns, 0)::BIGINT / whole.device_ns::BIGINT
            ELSE coalesce(cpu, 0)::BIGINT / nullif(whole.cpu_ns, 0)::BIGINT END AS share
FROM host FULL JOIN below USING (path) LEFT JOIN device USING (path), whole
ORDER BY path;
