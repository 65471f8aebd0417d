-- host_paths: host time per step and operator path: what is matched between two profiles without device work.
--
-- Columns:
--   step   number, -1 outside steps
--   path   operator calls from the outermost to this one, as of op_paths() without the module
--   calls, self_cpu_ns  sums; self time is without enclosed operator calls
CREATE OR REPLACE MACRO host_paths() AS TABLE
WITH RECURSIVE calls AS (
    SELECT event_id, step, self_cpu_ns, name, name AS path FROM HostOp WHERE parent_id < 0
    UNION ALL
    SELECT inner_call.event_id, inner_call.step, inner_call.self_cpu_ns, inner_call.name,
           CASE WHEN inner_call.name = calls.name THEN calls.path
                ELSE calls.path || ' > ' || inner_call.name END
    FROM HostOp AS inner_call JOIN calls ON inner_call.parent_id = calls.event_id
)
SELECT step, path, count(*) AS calls, sum(self_cpu_ns)::BIGINT AS self_cpu_ns FROM calls GROUP BY ALL;
