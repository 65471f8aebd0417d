import { expect, test } from "vitest";
import type { Track, TrackKind } from "../types";
import { layoutOf } from "./layout";

const track = (id: number, kind: TrackKind, lanes: number): Track => ({
  id,
  label: `i/PID:1/${kind}:${id}`,
  short: `${kind}:${id}`,
  kind,
  subtitle: "",
  provenance: "measured",
  lanes,
  physical_core: null,
});
const groups = [
  {
    label: "i/PID:1",
    tracks: [track(0, "framework", 3), track(1, "stream", 6), track(2, "runtime", 1), track(3, "device", 1)],
  },
];

test("a compact layout is lower, its lanes are not", () => {
  const [roomy, compact] = [layoutOf(groups, new Set()), layoutOf(groups, new Set(), new Set(), true)];
  expect(compact.height).toBeLessThan(roomy.height * 0.85);
  for (const id of [0, 1, 2, 3]) expect(compact.byTrack.get(id)!.laneHeight).toBe(roomy.byTrack.get(id)!.laneHeight);
});

test("lanes stay inside their row", () => {
  for (const compact of [false, true])
    for (const row of layoutOf(groups, new Set(), new Set(), compact).byTrack.values()) {
      const bottom = row.laneTop + row.track!.lanes * (row.laneHeight + row.laneGap) - row.laneGap;
      expect(row.laneTop).toBeGreaterThan(row.top);
      expect(bottom).toBeLessThan(row.top + row.height);
    }
});

test("a stream's waiting calls are a thin stack until it is opened", () => {
  const [flat, open] = [layoutOf(groups, new Set()), layoutOf(groups, new Set(), new Set([1]))];
  expect(flat.byTrack.get(1)!.height).toBeLessThanOrEqual(60);
  expect(open.byTrack.get(1)!.height).toBeGreaterThan(100);
});
