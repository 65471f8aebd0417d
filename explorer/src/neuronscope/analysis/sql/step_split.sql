-- step_split: where the time of each step went; the rows of a step and rank are disjoint and add up to its span.
--
-- A step spans from its start on the host to the end of the last device work launched in it (or of the host's range,
-- whichever is later). Each nanosecond goes to the first of these that holds on any device of the rank:
--   compute         a kernel or program computes
--   communication   a collective runs and nothing computes: exposed communication
--   memory_copy     only copies or fills run (also copies that the host makes for a neuron device)
--   launch_cost     only the fixed launch part of an execution runs (sources that tell it apart)
--   other_step      only work runs that was launched in another step, or in none
-- and otherwise, when nothing runs, to why the work that ends the pause had not begun:
--   host_late       the host had not called its launch yet
--   launch_latency  its launch was called after the device ran dry, and took this long to arrive: launch-bound
--   queued          it had been launched before the device ran dry: a dependency, or the device's own pause
--   execution_gap, sync, stream   the same, where the source tells which
--   no_more_work    the step's device work was over; the host went on
--   unknown         the source does not tell when it was launched
-- Without any device work in the profile: compute is top-level operator calls of any thread, communication collectives on
--   the host (host_collectives()) where no operator runs, and outside_operators the rest.
--
-- Parameters: as of executions(). Steps are those that begin in the range; where none does, the range (as far as anything
--   was recorded in it) is one window of step -1.
-- Columns: step, rank, category; time_ns; span_ns of the step; share = time_ns / span_ns
CREATE OR REPLACE MACRO step_split(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH marked AS MATERIALIZED (
    SELECT number, rank, min(start_ts) AS w_start, max(end_ts) AS w_end FROM Step -- one even if several processes have it
    WHERE CASE WHEN range_step >= 0 THEN number = range_step ELSE start_ts >= range_start AND start_ts < range_end END
    GROUP BY number, rank
), everything AS (
    SELECT rank, min(start_ts) AS first_ts, max(end_ts) AS last_ts
    FROM (SELECT rank, start_ts, end_ts FROM Execution UNION ALL SELECT rank, start_ts, end_ts FROM HostOp)
    WHERE NOT EXISTS (SELECT 1 FROM marked)
    GROUP BY rank
), windows AS MATERIALIZED (
    SELECT * FROM marked
    UNION ALL
    SELECT -1, rank, greatest(first_ts, range_start), least(last_ts, range_end) FROM everything
    WHERE greatest(first_ts, range_start) < least(last_ts, range_end)
), on_device AS (
    SELECT EXISTS (SELECT 1 FROM Execution) AS yes
), pieces AS (
    SELECT rank, step, start_ts + launch_part AS p_start, end_ts AS p_end, gap_cause,
           CASE WHEN enqueue_ts >= 0 THEN enqueue_ts ELSE launch_ts END AS called,
           CASE category WHEN 'compute' THEN 1 WHEN 'communication' THEN 2 ELSE 3 END AS level
    FROM executions(range_step := range_step) -- other steps' work is added below
    UNION ALL
    SELECT rank, step, start_ts, start_ts + launch_part, gap_cause,
           CASE WHEN enqueue_ts >= 0 THEN enqueue_ts ELSE launch_ts END, 4
    FROM executions(range_step := range_step) WHERE launch_part > 0
    UNION ALL
    SELECT rank, step, start_ts, end_ts, '', -1, 1
    FROM HostOp WHERE parent_id < 0 AND NOT (SELECT yes FROM on_device)
    UNION ALL
    SELECT rank, -1, start_ts, end_ts, '', -1, 2 FROM host_collectives() WHERE NOT (SELECT yes FROM on_device)
    UNION ALL -- work of other steps that runs during this one
    SELECT Execution.rank, -2, start_ts, end_ts, gap_cause, CASE WHEN enqueue_ts >= 0 THEN enqueue_ts ELSE launch_ts END, 5
    FROM Execution
    WHERE range_step >= 0 AND step <> range_step AND step >= 0
      AND end_ts > (SELECT min(w_start) FROM windows) AND start_ts < (SELECT max(w_end) FROM windows)
), placed AS (
    SELECT number, windows.rank, w_start, w_end, greatest(p_start, w_start) AS s, least(p_end, w_end) AS e, gap_cause, called,
           CASE WHEN number < 0 OR step = number OR NOT (SELECT yes FROM on_device) THEN level ELSE 5 END AS level
    FROM pieces JOIN windows ON pieces.rank = windows.rank AND p_end > w_start AND p_start < w_end
), swept AS MATERIALIZED (
    SELECT *, max(e) OVER before AS r5, lead(s) OVER (PARTITION BY number, rank ORDER BY s, e) AS next_s
    FROM placed
    WINDOW before AS (PARTITION BY number, rank ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), alone AS ( -- most pieces overlap no other: what they cover needs no look at the levels of others
    SELECT number, rank, level, sum(e - s) AS ns FROM swept
    WHERE (r5 IS NULL OR s >= r5) AND (next_s IS NULL OR next_s >= e) GROUP BY ALL
), reached AS (
    SELECT number, rank, s, e, level, r5,
           max(CASE WHEN level <= 1 THEN e END) OVER before AS r1, max(CASE WHEN level <= 2 THEN e END) OVER before AS r2,
           max(CASE WHEN level <= 3 THEN e END) OVER before AS r3, max(CASE WHEN level <= 4 THEN e END) OVER before AS r4
    FROM swept WHERE NOT ((r5 IS NULL OR s >= r5) AND (next_s IS NULL OR next_s >= e))
    WINDOW before AS (PARTITION BY number, rank ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), paused AS (
    SELECT number, rank, s - coalesce(r5, w_start) AS pause, -- before this piece nothing ran
           CASE WHEN called < 0 THEN 0 ELSE least(greatest(called - coalesce(r5, w_start), 0), pause) END AS late,
           CASE WHEN gap_cause IN ('execution_gap', 'sync', 'stream', 'launch_latency') THEN gap_cause
                WHEN called < 0 THEN 'unknown' WHEN late > 0 THEN 'launch_latency' ELSE 'queued' END AS cause
    FROM swept WHERE s > coalesce(r5, w_start)
), covered AS (
    SELECT number, rank, sum(c1) AS c1, sum(c2) AS c2, sum(c3) AS c3, sum(c4) AS c4, sum(c5) AS c5
    FROM (
        SELECT number, rank,
               CASE WHEN level <= 1 THEN greatest(e - greatest(s, coalesce(r1, s)), 0) END AS c1,
               CASE WHEN level <= 2 THEN greatest(e - greatest(s, coalesce(r2, s)), 0) END AS c2,
               CASE WHEN level <= 3 THEN greatest(e - greatest(s, coalesce(r3, s)), 0) END AS c3,
               CASE WHEN level <= 4 THEN greatest(e - greatest(s, coalesce(r4, s)), 0) END AS c4,
               greatest(e - greatest(s, coalesce(r5, s)), 0) AS c5
        FROM reached
        UNION ALL
        SELECT number, rank, CASE WHEN level <= 1 THEN ns END, CASE WHEN level <= 2 THEN ns END,
               CASE WHEN level <= 3 THEN ns END, CASE WHEN level <= 4 THEN ns END, ns
        FROM alone
    ) GROUP BY number, rank
), ended AS (
    SELECT number, rank, max(e) AS last_end FROM swept GROUP BY number, rank
), parts AS (
    SELECT number, rank, unnest([
        {'category': 'compute', 'ns': coalesce(c1, 0)},
        {'category': 'communication', 'ns': coalesce(c2, 0) - coalesce(c1, 0)},
        {'category': 'memory_copy', 'ns': coalesce(c3, 0) - coalesce(c2, 0)},
        {'category': 'launch_cost', 'ns': coalesce(c4, 0) - coalesce(c3, 0)},
        {'category': 'other_step', 'ns': coalesce(c5, 0) - coalesce(c4, 0)}
    ], recursive := true)
    FROM covered
    UNION ALL
    SELECT number, rank, CASE WHEN yes THEN cause ELSE 'outside_operators' END,
           pause - CASE WHEN cause IN ('launch_latency', 'queued') AND yes THEN late ELSE 0 END
    FROM paused, on_device
    UNION ALL
    SELECT number, rank, 'host_late', late FROM paused, on_device WHERE yes AND cause IN ('launch_latency', 'queued')
    UNION ALL
    SELECT number, windows.rank, CASE WHEN yes THEN 'no_more_work' ELSE 'outside_operators' END,
           w_end - coalesce(last_end, w_start)
    FROM windows LEFT JOIN ended USING (number, rank), on_device
)
SELECT number AS step, parts.rank AS rank, category, sum(ns)::BIGINT AS time_ns,
       any_value(w_end - w_start) AS span_ns, time_ns / nullif(span_ns, 0) AS share
FROM parts JOIN windows USING (number, rank)
GROUP BY number, parts.rank, category
HAVING sum(ns) > 0
ORDER BY step, rank, time_ns DESC, category;
