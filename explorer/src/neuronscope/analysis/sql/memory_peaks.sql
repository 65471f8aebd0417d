-- memory_peaks: the most memory in use at once, per place and series.
--
-- Columns:
--   rank, place, series, relative  as of memory_timeline()
--   peak_bytes, peak_ts, peak_step  the largest value, when it was first reached, in which step (-1 outside)
--   first_bytes, last_bytes  at the first and at the last sample;  samples: how many
--   share  peak_bytes of the largest value of the place's reserved memory (NULL where none is told)
CREATE OR REPLACE MACRO memory_peaks() AS TABLE
WITH samples AS (SELECT *, row_number() OVER () AS n FROM memory_timeline())
SELECT rank, place, series, bool_or(relative) AS relative, max(value_bytes) AS peak_bytes,
       arg_max(ts, (value_bytes, -n)) AS peak_ts, arg_max(step, (value_bytes, -n)) AS peak_step,
       arg_min(value_bytes, n) AS first_bytes, arg_max(value_bytes, n) AS last_bytes, count(*) AS samples,
       max(value_bytes) / nullif(max(max(value_bytes)) FILTER (series = 'reserved') OVER (PARTITION BY rank, place), 0) AS share
FROM samples
GROUP BY rank, place, series
ORDER BY peak_bytes DESC, rank, place, series;
