-- host_ops: the framework operator calls of a range.
--
-- Parameters: as of executions(); the range is that of the call's start on the host.
-- Columns: those of the table HostOp.
CREATE OR REPLACE MACRO host_ops(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
SELECT *
FROM HostOp
WHERE CASE WHEN range_step >= 0 AND step >= 0 THEN step = range_step
           ELSE start_ts >= range_start AND start_ts < range_end END;
