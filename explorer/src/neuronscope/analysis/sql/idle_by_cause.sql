-- idle_by_cause: idle() summed by cause, largest first; the sums add up to the gaps of totals().
--
-- Parameters: as of executions().
-- Columns: cause; count: how many intervals; duration_ns: their sum
CREATE OR REPLACE MACRO idle_by_cause(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
SELECT cause, count(*) AS count, sum(duration_ns)::BIGINT AS duration_ns
FROM idle(range_start := range_start, range_end := range_end, range_step := range_step)
GROUP BY cause
ORDER BY duration_ns DESC, cause;
