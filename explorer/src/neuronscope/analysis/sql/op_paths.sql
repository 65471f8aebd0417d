-- op_paths: device time per step and operator path: what is matched between two profiles.
--
-- Parameters: modules: false leaves the module path out
-- Columns:
--   step      number, -1 outside steps
--   path      module path, if known, then the operator calls from the outermost to the one that launched the work:
--             'layers.0.mlp: aten::linear > aten::addmm'; '(unlinked)' for work that no operator claims
--   kernel    name of the kernel or executable
--   executions, device_time_ns, estimated_ns  sums
--   first_shapes, last_shapes  the input shapes that come first and last as text, empty unknown: what differs between runs
CREATE OR REPLACE MACRO op_paths(modules := true) AS TABLE
WITH RECURSIVE calls AS (
    SELECT event_id, name, name AS path FROM HostOp WHERE parent_id < 0
    UNION ALL
    SELECT inner_call.event_id, inner_call.name,
           CASE WHEN inner_call.name = calls.name THEN calls.path
                ELSE calls.path || ' > ' || inner_call.name END
    FROM HostOp AS inner_call JOIN calls ON inner_call.parent_id = calls.event_id
)
SELECT step,
       CASE WHEN op = '' THEN '(unlinked)'
            ELSE CASE WHEN modules AND module_path <> '' THEN module_path || ': ' ELSE '' END || coalesce(path, op) END AS path,
       Execution.name AS kernel,
       count(*) AS executions,
       sum(duration_ns)::BIGINT AS device_time_ns,
       sum(estimated_ns)::BIGINT AS estimated_ns,
       min(shapes) AS first_shapes, max(shapes) AS last_shapes
FROM Execution LEFT JOIN calls ON calls.event_id = op_event_id AND op_event_id >= 0
GROUP BY ALL;
