import { tableFromArrays, tableToIPC } from "@uwdata/flechette";
import { expect, test } from "vitest";
import type { Track } from "../types";
import { arrowsOf } from "./arrows";
import { blocksOf, laneY, layoutOf, visibleBlocks } from "./layout";
import { buildScene, FLAG_DIM, FLAG_ESTIMATED, FLAG_GAP, hit, type Paint } from "./scene";
import { decodeTile, type Tile } from "./tile";

const track = (id: number, kind: Track["kind"], lanes = 1): Track => ({
  id,
  label: `i/PID:1/t${id}`,
  short: `t${id}`,
  kind,
  subtitle: "",
  provenance: "measured",
  lanes,
  physical_core: null,
});
const layout = layoutOf([{ label: "i/PID:1", tracks: [track(0, "framework", 2), track(1, "device")] }], new Set());
const paint = (lit: bigint[] | null = null): Paint => ({
  color: () => [10, 100, 200],
  lane: [250, 250, 250],
  gap: [100, 100, 100],
  lit: lit && new Set(lit),
  selected: lit?.[0] ?? null,
});

interface Item {
  id: bigint;
  track?: number;
  lane?: number;
  start: number;
  duration: number;
  count?: number;
  busy?: number;
  launch?: number;
  estimated?: boolean;
  gap?: boolean;
}

/** A tile as the server sends it: through Arrow IPC. */
function tileOf(items: Item[], range = { start: 0, end: 1000 }): Tile {
  const column = <T>(f: (i: Item) => T): T[] => items.map(f);
  const table = tableFromArrays({
    event_id: BigInt64Array.from(column((i) => i.id)),
    track: Int32Array.from(column((i) => i.track ?? 1)),
    lane: Int32Array.from(column((i) => i.lane ?? 0)),
    start: BigInt64Array.from(column((i) => BigInt(i.start))),
    duration: BigInt64Array.from(column((i) => BigInt(i.duration))),
    name_id: Int32Array.from(column(() => 0)),
    op_id: Int32Array.from(column(() => 0)),
    count: Int32Array.from(column((i) => i.count ?? 1)),
    busy: Float32Array.from(column((i) => i.busy ?? 1)),
    launch_ns: BigInt64Array.from(column((i) => BigInt(i.launch ?? 0))),
    estimated: column((i) => i.estimated ?? false),
    kind: Int8Array.from(column((i) => (i.gap ? 1 : 0))),
  });
  return decodeTile(tableToIPC(table, { format: "stream" })!, range);
}

test("a tile keeps ids beyond 2^53 and times to the nanosecond", () => {
  const tile = tileOf([
    { id: 9007199254740993n, start: 1_966_204, duration: 389_001, launch: 385_000, estimated: true },
  ]);
  expect(tile.eventId[0]).toBe(9007199254740993n);
  expect([tile.start[0], tile.duration[0], tile.launchNs[0], tile.estimated[0]]).toEqual([
    1_966_204, 389_001, 385_000, 1,
  ]);
});

test("a tile without rows is empty", () => {
  const none = tableToIPC(tableFromArrays({ event_id: BigInt64Array.from([1n]) }).select([]), { format: "stream" })!;
  expect(decodeTile(none, { start: 0, end: 10 }).length).toBe(0);
});

test("a slice that reaches over two tiles is drawn once", () => {
  const long = { id: 7n, start: 900, duration: 400 };
  const scene = buildScene([tileOf([long]), tileOf([long], { start: 1000, end: 2000 })], layout, paint());
  expect(scene.length).toBe(1);
});

test("a slice that began before all tiles is drawn, once", () => {
  const long = { id: 7n, start: -500, duration: 5000 };
  const scene = buildScene([tileOf([long]), tileOf([long], { start: 1000, end: 2000 })], layout, paint());
  expect(scene.length).toBe(1);
  expect(scene.x0[0]).toBe(-500);
});

test("launch cost is the hatched part from the start", () => {
  const scene = buildScene([tileOf([{ id: 1n, start: 100, duration: 400, launch: 385 }])], layout, paint());
  expect(scene.hatchEnd[0]).toBe(485);
});

test("merged slices are as high as they are busy, and never vanish", () => {
  const scene = buildScene(
    [
      tileOf([
        { id: 1n, start: 0, duration: 10, count: 40, busy: 0.5 },
        { id: 2n, start: 20, duration: 10, count: 2, busy: 0.0001 },
      ]),
    ],
    layout,
    paint(),
  );
  const row = layout.byTrack.get(1)!;
  expect(scene.h[0]).toBeCloseTo(row.laneHeight / 2);
  expect(scene.h[1]).toBeGreaterThanOrEqual(2);
  expect(scene.y[0]! + scene.h[0]!).toBeCloseTo(laneY(row, 0) + row.laneHeight); // stands on the lane's floor
});

test("a selection dims everything but its chain", () => {
  const items = [
    { id: 1n, start: 0, duration: 10 },
    { id: 2n, start: 20, duration: 10, estimated: true },
    { id: 3n, start: 30, duration: 5, gap: true },
  ];
  const scene = buildScene([tileOf(items)], layout, paint([2n]));
  const flags = new Map(Array.from({ length: 3 }, (_, i) => [scene.x0[i], scene.flags[i]!]));
  expect(flags.get(0)! & FLAG_DIM).toBeTruthy();
  expect(flags.get(20)! & FLAG_DIM).toBeFalsy();
  expect(flags.get(20)! & FLAG_ESTIMATED).toBeTruthy();
  expect(flags.get(30)).toBe(FLAG_GAP);
});

test("of overlapping slices in a lane, each knows what stays uncovered", () => {
  const items = [
    { id: 1n, start: 0, duration: 100 },
    { id: 2n, start: 40, duration: 60 },
  ];
  const plain = buildScene([tileOf(items)], layout, paint());
  expect([plain.clear[0], plain.clear[1]]).toEqual([40, 100]);
  const first = buildScene([tileOf(items)], layout, paint([1n])); // the earlier one is now on top
  const at = (id: number) => Array.from({ length: 2 }, (_, i) => i).find((i) => first.x0[i] === id)!;
  expect(first.clear[at(0)]).toBe(100);
  expect(first.clear[at(40)]).toBe(40);
});

test("the pointer finds the slice under it, and a thin one within the slack", () => {
  const items = [
    { id: 1n, start: 100, duration: 1 },
    { id: 2n, start: 500, duration: 100 },
    { id: 3n, track: 0, lane: 1, start: 100, duration: 10 },
  ];
  const scene = buildScene([tileOf(items)], layout, paint());
  const y = laneY(layout.byTrack.get(1)!, 0) + 5;
  expect(scene.x0[hit(scene, 550, y, 2)]).toBe(500);
  expect(scene.x0[hit(scene, 103, y, 2)]).toBe(100);
  expect(hit(scene, 300, y, 2)).toBe(-1);
  const other = hit(scene, 105, laneY(layout.byTrack.get(0)!, 1) + 2, 2);
  expect(scene.row[other]).toBe(2);
});

test("folding a group takes its tracks away", () => {
  const folded = layoutOf([{ label: "i/PID:1", tracks: [track(0, "framework")] }], new Set(["i/PID:1"]));
  expect(folded.byTrack.size).toBe(0);
  expect(folded.rows).toHaveLength(1);
});

test("only tracks in view are asked for", () => {
  const many = layoutOf([{ label: "g", tracks: Array.from({ length: 100 }, (_, i) => track(i, "device")) }], new Set());
  const blocks = blocksOf(many);
  expect(blocks.flat()).toHaveLength(100);
  expect(visibleBlocks(many, blocks, 0, 300)).toEqual([0]);
  expect(visibleBlocks(many, blocks, many.height - 100, many.height)).toEqual([blocks.length - 1]);
});

test("an arrow leaves where the next slice begins and arrives at its start, either way", () => {
  const event = (id: string, track_id: number, start: number, end: number) => ({
    id,
    name: id,
    op: null,
    track_id,
    lane: 0,
    lane_label: "",
    role: "",
    start,
    end,
    duration_ns: end - start,
    wait_ns: 0,
    wait_reason: null,
  });
  const chain = {
    cause: "a",
    events: [event("a", 0, 0, 100), event("b", 1, 50, 200), event("c", 0, 400, 500)],
    links: [
      { from: "a", to: "b", wait_ns: 5 },
      { from: "b", to: "c", wait_ns: 200 },
      { from: "b", to: "missing", wait_ns: 1 },
    ],
    upstream: [],
    downstream: [],
  };
  const place = (e: { track_id: number }) => ({ top: e.track_id * 100, height: 20 });
  const [down, up] = arrowsOf(chain, (ns) => ns, place);
  expect(down).toEqual({ from: { x: 58, y: 20 }, to: { x: 58, y: 100 }, waitNs: 5 });
  expect(up!.from.x).toBeLessThanOrEqual(200);
  expect([up!.from.y, up!.to.y]).toEqual([100, 20]);
  expect(arrowsOf(chain, (ns) => ns, place)).toHaveLength(2);
});
