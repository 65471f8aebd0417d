-- insights: what would make the range faster, largest bound first: rule, formula, bound on the gain, evidence.
--
-- A bound says how much the steps' spans can shrink at most if the reason went away and nothing else took its place.
-- Bounds of different rules overlap (a late host may be late because it loads data), so they don't add up. From an emulated
-- device's wait for this machine's host nothing is concluded.
--
-- Parameters: as of executions().
-- Columns:
--   rule      host_late, launch_latency, launch_cost, synchronization, data_loading, exposed_communication, exposed_copies,
--             straggler, conversions
--   gain_ns   the bound;  share = gain_ns / span_ns
--   span_ns   the steps' spans (step_split()), summed over steps and ranks
--   count     pieces of evidence
--   formula   how gain_ns is computed
--   evidence  the five largest pieces, the first of equals: {event_id, name, ns}
CREATE OR REPLACE MACRO insights(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH split AS MATERIALIZED (
    SELECT category, sum(time_ns)::BIGINT AS ns FROM step_split(range_start := range_start, range_end := range_end, range_step := range_step)
    GROUP BY category
), whole AS (
    SELECT sum(ns)::BIGINT AS span_ns,
           EXISTS (SELECT 1 FROM ProfileInfo WHERE key = 'emulated' AND lower(value) = 'true') AS emulated FROM split
), work AS MATERIALIZED (
    SELECT event_id, name, op, category, start_ts, duration_ns, device_part, launch_part, gap_ns, gap_cause, launch_ts, rank, step
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
), marked AS (
    SELECT number, rank, min(start_ts) AS begun FROM Step GROUP BY number, rank
), late AS MATERIALIZED ( -- only what lies in the work's own step, as in step_split()
    SELECT event_id, name, work.rank AS rank, greatest(start_ts - gap_ns, coalesce(begun, start_ts - gap_ns)) AS dry_ts,
           start_ts, greatest(CASE WHEN launch_ts >= 0 THEN least(launch_ts, start_ts) ELSE start_ts END - dry_ts, 0) AS ns
    FROM work LEFT JOIN marked ON marked.number = work.step AND marked.rank = work.rank, whole
    WHERE gap_cause = 'host_late' AND gap_ns > 0 AND NOT emulated
      AND (begun IS NOT NULL OR NOT EXISTS (SELECT 1 FROM marked))
), waits AS MATERIALIZED ( -- host calls that wait for the device, and those that fetch data
    SELECT event_id, Name.name AS name, start_ts, end_ts, rank, starts_with(Name.name, 'enumerate(DataLoader)') AS loads
    FROM Slice JOIN Name USING (name_id) JOIN Track USING (track_id)
    WHERE regexp_matches(Name.name, '(?i)^(cuda|hip|xpu|npu|acl|rt)\w*synchronize|^aten::(item|_local_scalar_dense)$|^enumerate\(DataLoader\)')
      AND kind IN ('framework', 'runtime')
), synced AS ( -- where no call waits, no row is left to search for one
    SELECT waits.event_id, waits.name, late.ns
    FROM (SELECT * FROM late WHERE dry_ts >= (SELECT min(start_ts) FROM waits WHERE NOT loads)) AS late
    ASOF JOIN (SELECT * FROM waits WHERE NOT loads) AS waits
        ON late.rank = waits.rank AND late.dry_ts >= waits.start_ts
    WHERE waits.end_ts >= late.dry_ts AND waits.end_ts <= late.start_ts
), loading AS (
    SELECT waits.event_id, waits.name, least(waits.end_ts, late.start_ts) - greatest(waits.start_ts, late.dry_ts) AS ns
    FROM (SELECT * FROM late WHERE start_ts > (SELECT min(start_ts) FROM waits WHERE loads)) AS late
    ASOF JOIN (SELECT * FROM waits WHERE loads) AS waits
        ON late.rank = waits.rank AND late.start_ts > waits.start_ts
    WHERE waits.end_ts > late.dry_ts
), behind AS MATERIALIZED (
    SELECT event_id, rank, name, lead_ns, ranks FROM collectives() WHERE last AND (range_step < 0 OR step = range_step)
), evidence AS (
    SELECT 'host_late' AS rule, event_id, name, ns FROM late WHERE ns > 0
    UNION ALL
    SELECT 'launch_latency', event_id, name, start_ts - launch_ts FROM work, whole
    WHERE launch_ts >= 0 AND gap_cause = 'host_late' AND gap_ns > 0 AND NOT emulated
    UNION ALL
    SELECT 'launch_cost', event_id, name, launch_part FROM work WHERE launch_part > 0
    UNION ALL
    SELECT 'synchronization', event_id, name, ns FROM synced
    UNION ALL
    SELECT 'data_loading', event_id, name, ns FROM loading
    UNION ALL
    SELECT 'exposed_communication', event_id, name, duration_ns FROM work WHERE category = 'communication'
    UNION ALL
    SELECT 'exposed_copies', event_id, name, duration_ns FROM work WHERE category = 'memory_copy'
    UNION ALL
    SELECT 'straggler', event_id, 'rank ' || rank || ' starts ' || name || ' last', lead_ns FROM behind WHERE lead_ns > 0
    UNION ALL
    SELECT 'conversions', event_id, op, device_part FROM work
    WHERE category = 'compute' AND op IN ('aten::copy_', 'aten::_to_copy', 'aten::to', 'aten::contiguous', 'aten::clone')
), found AS (
    SELECT rule, count(*) AS count, sum(ns)::BIGINT AS total,
           list_transform(max((ns::BIGINT, -event_id, name), 5), lambda row: {'event_id': -row[2], 'name': row[3], 'ns': row[1]})
               AS evidence
    FROM evidence GROUP BY rule
), bounds AS (
    SELECT 'host_late' AS rule, (SELECT ns FROM split WHERE category = 'host_late') AS gain_ns,
           'host_late of step_split(): nothing ran and the next launch had not been called' AS formula
    UNION ALL
    SELECT 'launch_latency', (SELECT ns FROM split WHERE category = 'launch_latency'),
           'launch_latency of step_split(): nothing ran, the launch was called and had not arrived'
    UNION ALL
    SELECT 'launch_cost', (SELECT sum(launch_part) - max(launch_part) FROM work),
           'sum of launch_part minus the largest: the same work as one execution'
    UNION ALL
    SELECT 'synchronization', (SELECT total FROM found WHERE rule = 'synchronization'),
           'idle until the next launch, where the host was waiting in a synchronizing call when the device ran dry'
    UNION ALL
    SELECT 'data_loading', (SELECT total FROM found WHERE rule = 'data_loading'),
           'idle of the device while the host was in the DataLoader'
    UNION ALL
    SELECT 'exposed_communication', (SELECT ns FROM split WHERE category = 'communication'),
           'communication of step_split(): collectives ran and nothing computed'
    UNION ALL
    SELECT 'exposed_copies', (SELECT ns FROM split WHERE category = 'memory_copy'),
           'memory_copy of step_split(): only copies ran'
    UNION ALL
    SELECT 'straggler', (SELECT sum(lead_ns * ranks) FROM behind),
           'per collective, how long the last rank started after the last but one, for every rank (collectives())'
    UNION ALL
    SELECT 'conversions', (SELECT total FROM found WHERE rule = 'conversions'),
           'device time of copies, casts and layout changes that compute nothing new'
)
SELECT rule, gain_ns::BIGINT AS gain_ns, gain_ns::BIGINT / nullif(span_ns, 0) AS share, span_ns, coalesce(count, 0) AS count,
       formula, coalesce(evidence, []) AS evidence
FROM bounds LEFT JOIN found USING (rule), whole
WHERE gain_ns > 0 AND NOT (emulated AND rule IN ('host_late', 'launch_latency', 'synchronization', 'data_loading'))
ORDER BY gain_ns DESC, rule;
