-- host_collectives: collectives that run on the host (Gloo, MPI), as ranges named 'gloo:all_reduce'.
--
-- Columns: event_id, rank, name, start_ts, end_ts
CREATE OR REPLACE MACRO host_collectives() AS TABLE
SELECT event_id, Track.rank AS rank, Name.name AS name, start_ts, end_ts
FROM Slice JOIN Name USING (name_id) JOIN Track USING (track_id)
WHERE is_collective(Name.name) AND contains(Name.name, ':') AND NOT contains(Name.name, '::') AND kind = 'framework';
