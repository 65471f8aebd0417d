-- memory_at_peak: what was alive when the most memory was allocated, by the operator that allocated it.
--
-- From torch's [memory] events with addresses: an allocation lives until the next event of its address. What was alive
-- already when the recording began is the row (before the recording), so that the rows of a place add up to its peak.
--
-- Columns:
--   rank, place  as of memory_timeline()
--   name         innermost operator that was open on the allocating thread; (no operator)
--   allocations  how many;  alive_bytes: their sizes
--   peak_bytes   allocated at the peak;  share = alive_bytes / peak_bytes
CREATE OR REPLACE MACRO memory_at_peak() AS TABLE
WITH RECURSIVE events AS MATERIALIZED (
    SELECT id, ts, thread_id, rank, (args->>'Bytes')::BIGINT AS change, args->>'Addr' AS address,
           CASE WHEN (args->>'Device Type')::BIGINT = 0 THEN 'cpu' ELSE 'device ' || (args->>'Device Id') END AS place,
           (args->>'Total Allocated')::BIGINT AS total
    FROM (SELECT id, start_ts AS ts, thread_id, extra_attributes_json::JSON AS args,
                 coalesce(try_cast(regexp_extract(instance_id, 'rank (\d+)$', 1) AS INTEGER), -1) AS rank
          FROM SystemProfileEvents
          WHERE duration_ns = 0 AND name = '[memory]')
    WHERE args->>'Addr' IS NOT NULL AND args->>'Total Allocated' IS NOT NULL
), peaks AS (
    SELECT rank, place, max(total) AS peak_bytes, arg_max((ts, id), (total, -ts, -id)) AS at
    FROM events GROUP BY rank, place
), lives AS (
    SELECT *, lead((ts, id)) OVER (PARTITION BY rank, place, address ORDER BY ts, id) AS until FROM events
), alive AS (
    SELECT lives.* FROM lives JOIN peaks USING (rank, place)
    WHERE change > 0 AND (ts, id) <= peaks.at AND (until IS NULL OR until > peaks.at)
), latest AS (
    SELECT alive.id, alive.ts, HostOp.event_id, HostOp.name, HostOp.parent_id, HostOp.end_ts
    FROM alive ASOF LEFT JOIN HostOp ON alive.thread_id = HostOp.thread_id AND alive.ts >= HostOp.start_ts
        AND (CASE WHEN alive.rank < 0 THEN 0 ELSE alive.rank END) = (CASE WHEN alive.rank < 0 THEN 0 ELSE HostOp.rank END)
), climbing AS (
    SELECT * FROM latest
    UNION ALL
    SELECT climbing.id, ts, outside.event_id, outside.name, outside.parent_id, outside.end_ts
    FROM climbing JOIN (
        SELECT * FROM HostOp WHERE start_ts <= (SELECT max(ts) FROM alive) -- nothing to look at where nothing was allocated
    ) AS outside ON outside.event_id = climbing.parent_id
    WHERE climbing.end_ts < climbing.ts
), owners AS (
    SELECT id, name FROM climbing WHERE end_ts >= ts
), told AS (
    SELECT rank, place, coalesce(owners.name, '(no operator)') AS name, count(*) AS allocations, sum(change)::BIGINT AS alive_bytes
    FROM alive LEFT JOIN owners USING (id) GROUP BY ALL
), rows AS (
    SELECT * FROM told
    UNION ALL
    SELECT rank, place, '(before the recording)', 0, any_value(peak_bytes) - coalesce(sum(alive_bytes), 0)
    FROM peaks LEFT JOIN told USING (rank, place) GROUP BY rank, place
)
SELECT rank, place, name, allocations, alive_bytes::BIGINT AS alive_bytes, peak_bytes, alive_bytes / nullif(peak_bytes, 0) AS share
FROM rows JOIN peaks USING (rank, place)
WHERE alive_bytes <> 0
ORDER BY rank, place, alive_bytes DESC, name;
