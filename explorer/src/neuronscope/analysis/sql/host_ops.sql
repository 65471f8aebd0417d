-- host_ops: the framework operator calls of a range.
--
-- Parameters: as of executions(); the range is that of the call's start on the host.
-- Columns: those of the table HostOp, and
--   counted  false for a call that only forwards: the one call inside another of the same operator. torch's
--            key_averages() counts the two as one; their self times add up either way.
CREATE OR REPLACE MACRO host_ops(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH calls AS (
    SELECT *, count(*) OVER (PARTITION BY parent_id) AS siblings
    FROM HostOp
)
SELECT calls.* EXCLUDE (siblings), coalesce(siblings > 1 OR outer_call.name <> calls.name, true) AS counted
FROM calls LEFT JOIN HostOp AS outer_call ON outer_call.event_id = calls.parent_id AND calls.parent_id >= 0
WHERE CASE WHEN range_step >= 0 AND calls.step >= 0 THEN calls.step = range_step
           ELSE calls.start_ts >= range_start AND calls.start_ts < range_end END;
