-- key_averages: the table of torch's key_averages() for the operators of a range, and beside it ours where torch is wrong.
--
-- torch (2.13) makes a tree of the host's events per thread and takes from a call's time that of its direct children:
-- operator calls, runtime calls (cudaLaunchKernel, …) and record_function ranges in it. A call whose only child has its own name is counted
-- with it as one. Device time goes to the operator whose id a kernel carries as "External id", and to no other.
-- What torch gets wrong:
--   device time  work without an External id (graph launches, traces of other tools) belongs to no operator in torch's
--                table; ours follows correlation ids, arrows and nesting too
--   self CPU     runtime calls and ranges are rows of their own there: an operator's own time is without its launches
--
-- Parameters: as of executions(); calls by their start on the host.
-- Columns:
--   name             operator
--   calls            counted as torch does
--   cpu_ns           host time of the calls, enclosed ones included (a call inside one of its own name counts once)
--   self_cpu_ns      without enclosed operator calls;  torch_self_cpu_ns: without runtime calls and ranges too
--   self_device_ns   device time launched by the calls themselves;  torch_self_device_ns: as torch links it
--   share            self_device_ns of the range's device time (of all self_cpu_ns without any)
--   why              why torch's device time differs, empty where it doesn't
CREATE OR REPLACE MACRO key_averages(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH RECURSIVE every_call AS MATERIALIZED (
    SELECT event_id, parent_id, name, thread_id, rank, start_ts, end_ts, self_cpu_ns,
           name IN ('aten::is_leaf', 'aten::output_nr', 'aten::_version', 'profiler::_record_function_enter',
                    'profiler::_record_function_enter_new', 'profiler::_record_function_exit') AS left_out -- by torch
    FROM HostOp
    WHERE CASE WHEN range_step >= 0 AND step >= 0 THEN step = range_step
               ELSE start_ts >= range_start AND start_ts < range_end END
      AND (range_step < 0 OR step IN (range_step, -1))
), ops AS MATERIALIZED (
    SELECT * FROM every_call WHERE NOT left_out
), ignored AS ( -- what torch leaves out stays in the time of the call around it
    SELECT parent_id, sum(end_ts - start_ts) AS ns FROM every_call WHERE left_out AND parent_id >= 0 GROUP BY parent_id
), placed AS ( -- runtime calls and record_function ranges: what else torch's tree has
    SELECT event_id, try_cast(regexp_extract(short, 'TID:(-?\d+)$', 1) AS BIGINT) AS thread_id, Track.rank AS rank,
           start_ts, end_ts, starts_with(short, 'framework') AS is_range
    FROM Slice JOIN Track USING (track_id)
    WHERE start_ts >= (SELECT min(start_ts) FROM ops) AND start_ts <= (SELECT max(end_ts) FROM ops)
      AND (starts_with(short, 'runtime/TID:') OR starts_with(short, 'framework/TID:') AND name_id IN (
          SELECT name_id FROM Name WHERE name NOT IN (SELECT DISTINCT name FROM HostOp)
              AND NOT regexp_matches(name, '\.py\(\d+\): |^<|^nn\.Module: |^ProfilerStep#')
      ))
), latest AS (
    SELECT placed.event_id, placed.start_ts, placed.end_ts, is_range, ops.event_id AS op, ops.parent_id, ops.end_ts AS op_end
    FROM placed ASOF JOIN ops
        ON placed.thread_id = ops.thread_id AND placed.rank = ops.rank AND placed.start_ts >= ops.start_ts
), climbing AS (
    SELECT * FROM latest
    UNION ALL
    SELECT climbing.event_id, climbing.start_ts, climbing.end_ts, is_range, ops.event_id, ops.parent_id, ops.end_ts
    FROM climbing JOIN ops ON ops.event_id = climbing.parent_id
    WHERE climbing.op_end < climbing.end_ts
), within AS MATERIALIZED (
    SELECT event_id, op, start_ts, end_ts, is_range FROM climbing
    WHERE op_end >= end_ts AND (NOT is_range OR event_id IN (
        SELECT id FROM SystemProfileEvents WHERE id IN (SELECT event_id FROM climbing WHERE is_range)
            AND contains(extra_attributes_json, '"category":"user_annotation"')
    ))
), ranges AS (
    SELECT * FROM within WHERE is_range
), parts AS ( -- each counts in its operator unless a range there holds it; operators that a range holds count in that
    SELECT op, 1 AS n, end_ts - start_ts AS ns FROM within
    WHERE NOT EXISTS (SELECT 1 FROM ranges WHERE ranges.op = within.op AND ranges.event_id <> within.event_id
                      AND ranges.start_ts <= within.start_ts AND ranges.end_ts >= within.end_ts
                      AND (NOT within.is_range OR ranges.event_id < within.event_id
                           OR ranges.end_ts - ranges.start_ts > within.end_ts - within.start_ts))
    UNION ALL
    SELECT held.parent_id, -1, held.start_ts - held.end_ts FROM ops AS held
    WHERE EXISTS (SELECT 1 FROM ranges WHERE ranges.op = held.parent_id
                  AND ranges.start_ts <= held.start_ts AND ranges.end_ts >= held.end_ts)
), inside AS (
    SELECT op, sum(n) AS n, sum(ns) AS ns FROM parts GROUP BY op
), children AS (
    SELECT parent_id, count(*) AS n FROM ops WHERE parent_id >= 0 GROUP BY parent_id
), calls AS (
    SELECT ops.event_id, ops.name, ops.end_ts - ops.start_ts AS cpu, ops.self_cpu_ns, coalesce(inside.ns, 0) - coalesce(ignored.ns, 0) AS launching,
           outside.event_id IS NOT NULL AND children.n + coalesce(around.n, 0) = 1 AS merged,
           outside.event_id IS NOT NULL AS repeated
    FROM ops LEFT JOIN inside ON inside.op = ops.event_id
    LEFT JOIN ops AS outside ON outside.event_id = ops.parent_id AND outside.name = ops.name
    LEFT JOIN children ON children.parent_id = outside.event_id
    LEFT JOIN inside AS around ON around.op = outside.event_id
    LEFT JOIN ignored ON ignored.parent_id = ops.event_id
), host AS (
    SELECT name, count(*) FILTER (NOT merged) AS calls, sum(cpu) FILTER (NOT repeated) AS cpu_ns,
           sum(self_cpu_ns) AS self_cpu_ns, sum(self_cpu_ns - launching) AS torch_self_cpu_ns
    FROM calls GROUP BY name
), work AS (
    SELECT event_id, op_event_id, op, device_part
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
), torch_trace AS ( -- other sources link by other ids, and torch would have been told
    SELECT EXISTS (SELECT 1 FROM ProfileInfo WHERE key = 'format' AND value = 'torch.profiler trace') AS yes
), linked AS (
    SELECT work.event_id, op, device_part,
           NOT (SELECT yes FROM torch_trace)
           OR coalesce(json_extract_string(args, '$."External id"'), json_extract_string(args, '$."external id"'))
              = HostOp.external_id::VARCHAR AS by_id
    FROM work JOIN (SELECT id, extra_attributes_json AS args FROM SystemProfileEvents) ON id = work.event_id
    LEFT JOIN HostOp ON HostOp.event_id = op_event_id
), device AS (
    SELECT op AS name, sum(device_part) AS ns, coalesce(sum(device_part) FILTER (by_id), 0) AS torch_ns FROM linked GROUP BY op
), whole AS (
    SELECT (SELECT sum(ns) FROM device) AS device_ns, (SELECT sum(self_cpu_ns) FROM host) AS cpu_ns
)
SELECT CASE WHEN name = '' THEN '(unlinked)' ELSE name END AS name, coalesce(calls, 0) AS calls,
       coalesce(host.cpu_ns, 0)::BIGINT AS cpu_ns, coalesce(host.self_cpu_ns, 0)::BIGINT AS self_cpu_ns,
       coalesce(torch_self_cpu_ns, 0)::BIGINT AS torch_self_cpu_ns, coalesce(ns, 0)::BIGINT AS self_device_ns,
       CASE WHEN name = '' THEN 0 ELSE coalesce(torch_ns, 0) END::BIGINT AS torch_self_device_ns,
       CASE WHEN whole.device_ns > 0 THEN coalesce(ns, 0)::BIGINT / whole.device_ns::BIGINT
            ELSE coalesce(host.self_cpu_ns, 0)::BIGINT / nullif(whole.cpu_ns, 0)::BIGINT END AS share,
       CASE WHEN name = '' OR coalesce(ns, 0) = coalesce(torch_ns, 0) THEN ''
            ELSE 'linked by correlation, arrow or nesting; torch goes by External id alone' END AS why
FROM host FULL JOIN device USING (name), whole
ORDER BY self_device_ns DESC, self_cpu_ns DESC, name;
