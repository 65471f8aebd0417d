-- host_by_step: operator calls of every step on the host: the samples of a comparison without device work.
--
-- Columns: step (-1 outside steps); calls; self_cpu_ns: sum; span_ns: first start to last end of the calls
CREATE OR REPLACE MACRO host_by_step() AS TABLE
SELECT step, count(*) AS calls, sum(self_cpu_ns)::BIGINT AS self_cpu_ns, max(end_ts) - min(start_ts) AS span_ns
FROM HostOp GROUP BY step
ORDER BY step;
