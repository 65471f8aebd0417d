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
    SELECT * FROM HostOp
    WHERE CASE WHEN range_step >= 0 AND step >= 0 THEN step = range_step
               ELSE start_ts >= range_start AND start_ts < range_end END
      AND (range_step < 0 OR step IN (range_step, -1)) -- implied; lets row groups be skipped
), same_name AS (
    SELECT calls.event_id, calls.parent_id
    FROM calls JOIN HostOp AS outer_call ON outer_call.event_id = calls.parent_id
    WHERE calls.parent_id >= 0 AND outer_call.name = calls.name
), forwarding AS (
    SELECT any_value(event_id) AS event_id
    FROM (SELECT HostOp.event_id, parent_id FROM HostOp WHERE parent_id IN (SELECT parent_id FROM same_name))
    GROUP BY parent_id HAVING count(*) = 1
)
SELECT calls.*, calls.event_id NOT IN (SELECT event_id FROM forwarding) AS counted
FROM calls;
