-- memory_timeline: memory in use over time, one row per sample and series; every source the profile has.
--
-- Sources: torch's [memory] events (profile_memory=True), counters whose name or key speaks of bytes or memory, and the
-- published tables HostMemUsage and SystemProfileHbmUsage (there by category).
--
-- Columns:
--   rank        of a profile of several ranks, else -1
--   place       whose memory: 'cpu', 'device 0' ([memory]); the counter's name; 'host'; 'device 0 HBM 1'
--   series      allocated, reserved (what the caching allocator holds), used, or a category (weights, tensors, …)
--   ts          ns
--   value_bytes in use from then on; of old traces, which tell changes only, since the recording began (relative)
--   relative    true for those
--   step        that was open on the host, -1 none
CREATE OR REPLACE MACRO memory_timeline() AS TABLE
WITH events AS (
    SELECT id, start_ts AS ts, name, instance_id, extra_attributes_json::JSON AS args FROM SystemProfileEvents
    WHERE duration_ns = 0 AND (name = '[memory]' OR regexp_matches(name, '(?i)bytes|memory|allocat|reserved'))
), torch AS (
    SELECT id, instance_id, ts,
           CASE WHEN (args->>'Device Type')::BIGINT = 0 THEN 'cpu' ELSE 'device ' || (args->>'Device Id') END AS place,
           (args->>'Total Allocated')::BIGINT AS allocated, (args->>'Total Reserved')::BIGINT AS reserved,
           (args->>'Bytes')::BIGINT AS change
    FROM events WHERE name = '[memory]' AND args->>'Bytes' IS NOT NULL
), counters AS (
    SELECT id, instance_id, ts, name, unnest(json_keys(args)) AS key, args FROM events WHERE name <> '[memory]'
), samples AS (
    SELECT id, instance_id, place, 'allocated' AS series, ts,
           coalesce(allocated, sum(change) OVER (PARTITION BY instance_id, place ORDER BY ts, id))::BIGINT AS value_bytes,
           allocated IS NULL AS relative
    FROM torch
    UNION ALL
    SELECT id, instance_id, place, 'reserved', ts, reserved, false FROM torch WHERE reserved > 0
    UNION ALL
    SELECT id, instance_id, name, key, ts, try_cast(args->>key AS BIGINT), false FROM counters
    WHERE try_cast(args->>key AS BIGINT) IS NOT NULL AND regexp_matches(name || ' ' || key, '(?i)bytes|memory|alloc|reserved')
      AND key <> 'category'
    UNION ALL
    SELECT 0, instance_id, 'host', 'used', timestamp, used_bytes, false FROM HostMemUsage
    UNION ALL
    SELECT 0, instance_id, 'device ' || device_idx || ' HBM ' || hbm_idx, replace(series, '_bytes', ''), timestamp, bytes, false
    FROM (UNPIVOT SystemProfileHbmUsage ON COLUMNS(* EXCLUDE (timestamp, device_idx, hbm_idx, instance_id)) INTO NAME series VALUE bytes)
)
SELECT coalesce(try_cast(regexp_extract(instance_id, 'rank (\d+)$', 1) AS INTEGER), -1) AS rank, place, series, ts, value_bytes,
       relative, CASE WHEN ts <= marked.end_ts THEN marked.number ELSE -1 END AS step
FROM samples ASOF LEFT JOIN (
    SELECT number, min(start_ts) AS start_ts, max(end_ts) AS end_ts FROM Step GROUP BY number
) AS marked ON ts >= marked.start_ts
ORDER BY rank, place, series, ts, id;
