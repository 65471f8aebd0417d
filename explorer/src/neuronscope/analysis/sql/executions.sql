-- executions: the device work of a range, each execution once however many physical cores ran it.
--
-- Parameters (ns, absolute; all optional):
--   range_start, range_end  half-open range of the device start
--   range_step              step number: executions launched in that step; those that name no step go by their start
-- Columns: those of the table Execution, and
--   split       the source tells launch cost and program apart for this execution
--   launch_part launch_ns, 0 without split
--   device_part what counts as device time: the duration, 0 for a host copy of a neuron device, as in torch's tables
--               of the same run (where a CUDA copy counts)
--   work_part   device_part without the launch part: engines and DMA, or the whole kernel or copy
--   category    compute, communication (by the name of a collective's kernel or operator) or memory_copy (fills too)
CREATE OR REPLACE MACRO executions(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
SELECT *,
       launch_ns >= 0 AND program_ns >= 0 AS split,
       CASE WHEN launch_ns > 0 THEN least(launch_ns, duration_ns) ELSE 0 END AS launch_part,
       CASE WHEN kind = 'host_copy' THEN 0 ELSE duration_ns END AS device_part,
       CASE WHEN kind = 'host_copy' THEN 0 ELSE duration_ns - launch_part END AS work_part,
       CASE WHEN kind <> 'exec' THEN 'memory_copy' -- of the names, once each: a pattern per row would be slow
            WHEN name IN (SELECT Name.name FROM Name WHERE is_collective(Name.name)) THEN 'communication'
            WHEN op IN (SELECT Name.name FROM Name WHERE is_collective(Name.name)) THEN 'communication'
            ELSE 'compute' END AS category
FROM Execution
WHERE CASE WHEN range_step >= 0 AND step >= 0 THEN step = range_step
           ELSE start_ts >= range_start AND start_ts < range_end END
  AND (range_step < 0 OR step IN (range_step, -1)) -- these two are implied; they let row groups be skipped
  AND (range_step >= 0 OR (start_ts >= range_start AND start_ts < range_end));
