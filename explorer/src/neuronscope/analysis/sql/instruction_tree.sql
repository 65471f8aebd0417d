-- instruction_tree: instructions of device profiles by layer, HLO operator, BIR instruction and opcode.
--
-- The levels are the columns layer (Framework), hlo_name (Hlo), bir_instruction_name (Bir) and opcode of the table Instruction;
-- a level that the profile doesn't tell, or that repeats the one above, is left out. The 2,000 largest rows.
--
-- Parameters: as of executions(); instructions that begin in the range, of a step those of its executions.
-- Columns:
--   path          the levels from the outermost in: ['aten::linear', 'aten.mm.default', 'matmul'];  depth, name: its last
--   instructions  how many
--   active_ns     durations added up;  tensor_ns, vector_ns, scalar_ns, gpsimd_ns, sync_ns: parts of it by engine
--   hbm_bytes     device memory read and written;  flops
--   first_ts, last_ts  first start and last end
--   share         active_ns of that of all instructions of the range
CREATE OR REPLACE MACRO instruction_tree(
    range_start := -9223372036854775807, range_end := 9223372036854775807, range_step := -1
) AS TABLE
WITH chosen AS (
    SELECT list_filter([layer, hlo_name, bir_instruction_name, opcode], lambda level: coalesce(level, '') <> '') AS told,
           list_filter(told, lambda level, place: place = 1 OR level <> told[place - 1]) AS levels, engine, duration_ns,
           coalesce(hbm_read_bytes, 0) + coalesce(hbm_write_bytes, 0) AS moved, coalesce(raw_flops, 0) AS flops, start_ts, end_ts
    FROM Instruction
    WHERE CASE WHEN range_step >= 0
               THEN execution_id IN (SELECT execution_id FROM executions(range_start := range_start, range_end := range_end, range_step := range_step))
               ELSE start_ts >= range_start AND start_ts < range_end END
), grouped AS ( -- by full path first: there are few of them
    SELECT levels, engine, count(*) AS n, sum(duration_ns) AS ns, sum(moved) AS moved, sum(flops) AS flops,
           min(start_ts) AS first_ts, max(end_ts) AS last_ts
    FROM chosen GROUP BY ALL
), above AS (
    SELECT levels[1:depth] AS path, grouped.* FROM (SELECT *, unnest(range(1, len(levels) + 1)) AS depth FROM grouped) AS grouped
)
SELECT path, len(path) AS depth, path[-1] AS name, sum(n)::BIGINT AS instructions, sum(ns)::BIGINT AS active_ns,
       coalesce(sum(ns) FILTER (starts_with(engine, 'Tensor')), 0)::BIGINT AS tensor_ns,
       coalesce(sum(ns) FILTER (engine = 'Vector'), 0)::BIGINT AS vector_ns,
       coalesce(sum(ns) FILTER (engine = 'Scalar'), 0)::BIGINT AS scalar_ns,
       coalesce(sum(ns) FILTER (engine = 'GpSimd'), 0)::BIGINT AS gpsimd_ns,
       coalesce(sum(ns) FILTER (engine = 'Sync'), 0)::BIGINT AS sync_ns,
       sum(moved)::BIGINT AS hbm_bytes, sum(flops)::BIGINT AS flops, min(first_ts) AS first_ts, max(last_ts) AS last_ts,
       active_ns / nullif((SELECT sum(ns) FROM grouped)::BIGINT, 0) AS share
FROM above GROUP BY path
QUALIFY row_number() OVER (ORDER BY sum(ns) DESC, len(path), path) <= 2000
ORDER BY path;
