-- overlap: how much of communication and of copying is hidden behind computation, per device.
--
-- All times are unions of intervals on one device, so that overlapping streams count once.
--
-- Parameters: as of executions().
-- Columns:
--   rank, process_id, device  whose work
--   category    communication or memory_copy
--   executions  how many collectives or copies;  sum_ns: their durations added up
--   time_ns     when any of them ran (union);  compute_ns: when anything computed (union)
--   hidden_ns   part of time_ns in which something computed;  exposed_ns = time_ns - hidden_ns
--   share       hidden_ns / time_ns
--   exposed_share  exposed_ns / span_ns
--   span_ns     first start to last end of the device's work in the range
CREATE OR REPLACE MACRO overlap(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH pieces AS (
    SELECT rank, process_id, device, category, duration_ns, execution_id, end_ts AS e,
           CASE WHEN category = 'compute' THEN start_ts + launch_part ELSE start_ts END AS s
    FROM executions(range_start := range_start, range_end := range_end, range_step := range_step)
), reached AS (
    SELECT *,
           max(CASE WHEN category = 'compute' THEN e END) OVER before AS r_compute,
           max(CASE WHEN category = 'communication' THEN e END) OVER before AS r_comm,
           max(CASE WHEN category = 'memory_copy' THEN e END) OVER before AS r_copy,
           max(CASE WHEN category <> 'memory_copy' THEN e END) OVER before AS r_with_comm,
           max(CASE WHEN category <> 'communication' THEN e END) OVER before AS r_with_copy
    FROM pieces
    WINDOW before AS (
        PARTITION BY rank, process_id, device ORDER BY s, execution_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
), unions AS (
    SELECT rank, process_id, device, max(e) - min(s) AS span_ns,
           count(*) FILTER (category = 'communication') AS comms, count(*) FILTER (category = 'memory_copy') AS copies,
           sum(duration_ns) FILTER (category = 'communication') AS comm_sum,
           sum(duration_ns) FILTER (category = 'memory_copy') AS copy_sum,
           coalesce(sum(greatest(e - greatest(s, coalesce(r_compute, s)), 0)) FILTER (category = 'compute'), 0) AS compute,
           sum(greatest(e - greatest(s, coalesce(r_comm, s)), 0)) FILTER (category = 'communication') AS comm,
           sum(greatest(e - greatest(s, coalesce(r_copy, s)), 0)) FILTER (category = 'memory_copy') AS copy,
           sum(greatest(e - greatest(s, coalesce(r_with_comm, s)), 0)) FILTER (category <> 'memory_copy') AS with_comm,
           sum(greatest(e - greatest(s, coalesce(r_with_copy, s)), 0)) FILTER (category <> 'communication') AS with_copy
    FROM reached GROUP BY rank, process_id, device
), rows AS (
    SELECT rank, process_id, device, 'communication' AS category, comms AS executions, comm_sum AS sum_ns, comm AS time_ns,
           compute AS compute_ns, with_comm - compute AS exposed_ns, span_ns FROM unions WHERE comms > 0
    UNION ALL
    SELECT rank, process_id, device, 'memory_copy', copies, copy_sum, copy, compute, with_copy - compute, span_ns
    FROM unions WHERE copies > 0
)
SELECT rank, process_id, device, category, executions, sum_ns::BIGINT AS sum_ns, time_ns::BIGINT AS time_ns,
       compute_ns::BIGINT AS compute_ns, (time_ns - exposed_ns)::BIGINT AS hidden_ns, exposed_ns::BIGINT AS exposed_ns,
       hidden_ns / nullif(time_ns::BIGINT, 0) AS share, exposed_ns::BIGINT / nullif(span_ns, 0) AS exposed_share, span_ns
FROM rows
ORDER BY rank, process_id, device, category;
