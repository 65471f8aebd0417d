-- memory_curve: memory_timeline() in 200 equal pieces of the profile, for a picture that keeps every peak.
--
-- Columns:
--   rank, place, series  as of memory_timeline()
--   start_ts      of the piece that holds the samples (pieces without any are left out: the value stays)
--   peak_bytes    largest value in it;  last_bytes: the value at its end
CREATE OR REPLACE MACRO memory_curve() AS TABLE
WITH samples AS (
    SELECT *, row_number() OVER () AS n FROM memory_timeline()
), bounds AS (
    SELECT min(start_ts) AS low, greatest(max(end_ts) - min(start_ts), 1) AS span FROM Slice
), pieces AS (
    SELECT samples.*, low, span, least(greatest((ts - low) * 200 // span, 0), 199) AS piece FROM samples, bounds
)
SELECT rank, place, series, any_value(low) + piece * any_value(span) // 200 AS start_ts, max(value_bytes) AS peak_bytes,
       arg_max(value_bytes, n) AS last_bytes
FROM pieces GROUP BY rank, place, series, piece
ORDER BY rank, place, series, piece;
