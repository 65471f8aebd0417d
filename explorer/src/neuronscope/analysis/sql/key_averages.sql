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
), ops AS (
    SELECT * EXCLUDE (left_out) FROM every_call WHERE NOT left_out
), bounds AS MATERIALIZED (
    SELECT min(start_ts) AS first_ts, max(end_ts) AS last_ts FROM ops
), kinds AS ( -- tracks by the thread they belong to, once each: a pattern per slice would be slow
    SELECT track_id, rank, starts_with(short, 'framework') AS is_range,
           try_cast(regexp_extract(short, 'TID:(-?\d+)$', 1) AS BIGINT) AS thread_id
    FROM Track WHERE starts_with(short, 'runtime/TID:') OR starts_with(short, 'framework/TID:')
), placed AS ( -- runtime calls and record_function ranges: what else torch's tree has
    SELECT event_id, thread_id, kinds.rank AS rank, start_ts, end_ts, is_range
    FROM Slice JOIN kinds USING (track_id)
    WHERE start_ts >= (SELECT first_ts FROM bounds) AND start_ts <= (SELECT last_ts FROM bounds)
      AND (NOT is_range OR name_id IN (
          SELECT name_id FROM Name WHERE name NOT IN (SELECT DISTINCT name FROM HostOp)
              AND NOT regexp_matches(name, '\.py\(\d+\): |^<|^nn\.Module: |^ProfilerStep#')
      ))
), latest AS (
    SELECT placed.event_id, placed.start_ts, placed.end_ts, is_range, ops.event_id AS op, ops.parent_id, ops.end_ts AS op_end,
           ops.name
    FROM placed ASOF JOIN ops
        ON placed.thread_id = ops.thread_id AND placed.rank = ops.rank AND placed.start_ts >= ops.start_ts
), climbing AS (
    SELECT * FROM latest
    UNION ALL
    SELECT climbing.event_id, climbing.start_ts, climbing.end_ts, is_range, ops.event_id, ops.parent_id, ops.end_ts, ops.name
    FROM climbing JOIN ops ON ops.event_id = climbing.parent_id
    WHERE climbing.op_end < climbing.end_ts
), within AS MATERIALIZED (
    SELECT event_id, op, name, start_ts, end_ts, is_range FROM climbing
    WHERE op_end >= end_ts AND (NOT is_range OR event_id IN (
        SELECT id FROM SystemProfileEvents WHERE id IN (SELECT event_id FROM climbing WHERE is_range)
            AND contains(extra_attributes_json, '"category":"user_annotation"')
    ))
), ranges AS MATERIALIZED (
    SELECT * FROM within WHERE is_range
), covered AS ( -- what a range holds counts in that range, not in the operator around both; few calls are near a range
    SELECT event_id FROM (SELECT * FROM within WHERE op IN (SELECT op FROM ranges)) AS near
    WHERE EXISTS (SELECT 1 FROM ranges WHERE ranges.op = near.op AND ranges.event_id <> near.event_id
                  AND ranges.start_ts <= near.start_ts AND ranges.end_ts >= near.end_ts
                  AND (NOT near.is_range OR ranges.event_id < near.event_id
                       OR ranges.end_ts - ranges.start_ts > near.end_ts - near.start_ts))
), held AS (
    SELECT near.parent_id, near.end_ts - near.start_ts AS ns
    FROM (SELECT * FROM ops WHERE parent_id IN (SELECT op FROM ranges)) AS near
    WHERE EXISTS (SELECT 1 FROM ranges WHERE ranges.op = near.parent_id
                  AND ranges.start_ts <= near.start_ts AND ranges.end_ts >= near.end_ts)
), taken AS ( -- from an operator's own time besides that of operators in it, by the operator's name
    SELECT name, sum(end_ts - start_ts) AS ns FROM within WHERE event_id NOT IN (SELECT event_id FROM covered) GROUP BY name
    UNION ALL
    SELECT name, -sum(ns) FROM (
        SELECT parent_id, ns FROM held
        UNION ALL -- what torch leaves out stays in the time of the call around it
        SELECT parent_id, end_ts - start_ts FROM every_call WHERE left_out
    ) JOIN (
        SELECT event_id, name FROM ops
        WHERE event_id IN (SELECT parent_id FROM held UNION ALL SELECT parent_id FROM every_call WHERE left_out)
    ) ON event_id = parent_id GROUP BY name
), repeated AS MATERIALIZED ( -- calls inside one of their own name
    SELECT ops.name, ops.parent_id, ops.end_ts - ops.start_ts AS cpu
    FROM ops JOIN ops AS outside ON outside.event_id = ops.parent_id AND outside.name = ops.name
), inside AS ( -- of the calls around those: how much else they hold
    SELECT op, sum(n) AS n FROM (
        SELECT parent_id AS op, 1 AS n FROM ops WHERE parent_id IN (SELECT parent_id FROM repeated)
        UNION ALL
        SELECT op, 1 FROM within WHERE op IN (SELECT parent_id FROM repeated) AND event_id NOT IN (SELECT event_id FROM covered)
        UNION ALL
        SELECT parent_id, -1 FROM held WHERE parent_id IN (SELECT parent_id FROM repeated)
    ) GROUP BY op
), merged AS (
    SELECT repeated.name, count(*) FILTER (inside.n = 1) AS calls, sum(cpu) AS cpu
    FROM repeated JOIN inside ON inside.op = repeated.parent_id GROUP BY repeated.name
), summed AS (
    SELECT name, count(*) AS calls, sum(end_ts - start_ts) AS cpu, sum(self_cpu_ns) AS self_cpu_ns FROM ops GROUP BY name
), host AS (
    SELECT name, summed.calls - coalesce(merged.calls, 0) AS calls,
           summed.cpu - coalesce(merged.cpu, 0) AS cpu_ns, self_cpu_ns,
           self_cpu_ns - coalesce(ns, 0) AS torch_self_cpu_ns
    FROM summed LEFT JOIN merged USING (name) LEFT JOIN (SELECT name, sum(ns) AS ns FROM taken GROUP BY name) USING (name)
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
