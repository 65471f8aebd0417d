-- collectives: every collective that several ranks took part in, one row per rank, on one clock.
--
-- A collective is matched by its step, its process group (where the trace names it), its name and its number among those of
-- the rank; rows whose number of ranks differs from the group's are kept, sends and receives are left out (they join two
-- ranks only). The clocks of the ranks are aligned on the ends: a collective ends on all ranks at nearly the same time, so a
-- rank's offset is the median, over collectives, of its end minus the median end of all ranks.
--
-- Columns:
--   step, group_name, name, number  what is matched; number counts from 1 per step, group and name
--   rank, event_id       whose part, and its event
--   start_ts, end_ts     of this rank on its own clock;  duration_ns
--   offset_ns            of the rank's clock;  residual_ns = end - median end - offset: what alignment can't explain
--   wait_ns              from this rank's aligned start to the last rank's: time spent waiting for others
--   last                 this rank started last (ties: the lowest rank)
--   lead_ns              of the last rank: how long after the last but one it started, 0 for others
--   ranks                how many took part
CREATE OR REPLACE MACRO collectives() AS TABLE
WITH device_parts AS (
    SELECT event_id, rank, step, name, start_ts, end_ts FROM executions() WHERE category = 'communication' AND rank >= 0
), host_parts AS ( -- Gloo's and others' on the host, where no device runs collectives
    SELECT event_id, rank, -1 AS step, name, start_ts, end_ts FROM host_collectives()
    WHERE rank >= 0 AND NOT EXISTS (SELECT 1 FROM device_parts)
), parts AS (
    SELECT * FROM device_parts UNION ALL SELECT * FROM host_parts
), grouped AS (
    SELECT parts.*, coalesce(extra_attributes_json::JSON->>'Process Group Ranks',
                             extra_attributes_json::JSON->>'Process Group Name', '') AS group_name
    FROM parts JOIN SystemProfileEvents ON id = event_id
    WHERE NOT regexp_matches(parts.name, '(?i)send_?recv|_send|_recv|broadcast')
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY rank, step, group_name, name ORDER BY start_ts, event_id) AS number FROM grouped
), matched AS (
    SELECT *, count(*) OVER same AS ranks, median(end_ts - (SELECT min(end_ts) FROM parts)) OVER same AS middle
    FROM numbered WINDOW same AS (PARTITION BY step, group_name, name, number)
    QUALIFY count(*) OVER same > 1
), clocks AS (
    SELECT rank, median(end_ts - (SELECT min(end_ts) FROM parts) - middle)::BIGINT AS offset_ns FROM matched GROUP BY rank
), aligned AS (
    SELECT matched.*, offset_ns, start_ts - offset_ns AS begun,
           (end_ts - (SELECT min(end_ts) FROM parts) - middle - offset_ns)::BIGINT AS residual_ns
    FROM matched JOIN clocks USING (rank)
), ordered AS (
    SELECT *, max(begun) OVER same AS last_begun, row_number() OVER (same ORDER BY begun DESC, rank) AS place,
           begun - lead(begun) OVER (same ORDER BY begun DESC, rank) AS ahead
    FROM aligned WINDOW same AS (PARTITION BY step, group_name, name, number)
)
SELECT step, group_name, name, number, rank, event_id, start_ts, end_ts, end_ts - start_ts AS duration_ns, offset_ns,
       residual_ns, last_begun - begun AS wait_ns, place = 1 AS last, CASE WHEN place = 1 THEN ahead ELSE 0 END AS lead_ns, ranks
FROM ordered
ORDER BY step, group_name, name, number, rank;
