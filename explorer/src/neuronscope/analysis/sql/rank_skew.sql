-- rank_skew: one row per rank of a distributed job: its work, its wait for others, and how often others waited for it.
--
-- Columns:
--   rank             number
--   steps            complete steps;  step_ns: their median span (host start to end of device work)
--   compute_ns, communication_ns, copy_ns   device time by category, over everything (sums of durations)
--   compute_skew     compute_ns / median compute_ns of all ranks - 1
--   collectives      how many were matched with other ranks (see collectives())
--   offset_ns        clock offset that aligns the ends of collectives;  residual_ns: median absolute error after alignment,
--                    residual_max_ns: the largest: waits shorter than these say nothing
--   wait_ns          time in collectives waiting for the last rank to start
--   share            wait_ns of the time in those collectives
--   last             collectives that this rank started last;  caused_ns: how long after the last but one, summed: the wait
--                    that would go if it kept up
CREATE OR REPLACE MACRO rank_skew() AS TABLE
WITH work AS (
    SELECT rank, sum(device_part) FILTER (category = 'compute') AS compute_ns,
           sum(device_part) FILTER (category = 'communication') AS communication_ns,
           sum(device_part) FILTER (category = 'memory_copy') AS copy_ns
    FROM executions() WHERE rank >= 0 GROUP BY rank
), spans AS (
    SELECT rank, count(*) AS steps, median(end_ts - start_ts)::BIGINT AS step_ns FROM Step
    WHERE complete AND rank >= 0 GROUP BY rank
), waits AS (
    SELECT rank, count(*) AS collectives, any_value(offset_ns) AS offset_ns, median(abs(residual_ns))::BIGINT AS residual_ns,
           max(abs(residual_ns)) AS residual_max_ns, sum(wait_ns)::BIGINT AS wait_ns,
           sum(wait_ns) / nullif(sum(duration_ns), 0) AS share, count(*) FILTER (last) AS last,
           sum(lead_ns)::BIGINT AS caused_ns
    FROM collectives() GROUP BY rank
)
SELECT rank, coalesce(steps, 0) AS steps, step_ns, coalesce(compute_ns, 0)::BIGINT AS compute_ns,
       coalesce(communication_ns, 0)::BIGINT AS communication_ns, coalesce(copy_ns, 0)::BIGINT AS copy_ns,
       compute_ns / nullif(median(compute_ns) OVER (), 0) - 1 AS compute_skew, coalesce(collectives, 0) AS collectives,
       offset_ns, residual_ns, residual_max_ns, wait_ns, share, coalesce(last, 0) AS last, caused_ns
FROM (SELECT rank FROM work UNION SELECT rank FROM spans UNION SELECT rank FROM waits) AS ranks
LEFT JOIN work USING (rank) LEFT JOIN spans USING (rank) LEFT JOIN waits USING (rank)
ORDER BY rank;
