/**
 * What is drawn: the items of the tiles in view, placed in lanes and coloured. Built when tiles, selection, layout or
 * colours change; panning and zooming only change the view it is drawn with.
 */

import { darker, mix, type Rgb } from "../colors";
import { type Layout, laneY } from "./layout";
import type { Tile } from "./tile";

export const FLAG_ESTIMATED = 1;
export const FLAG_GAP = 2;
export const FLAG_DIM = 4;
export const FLAG_SELECTED = 8;

/** Columns of drawn items; times in nanoseconds, heights in CSS pixels from the top of the lane area. */
export interface Scene {
  length: number;
  x0: Float64Array;
  x1: Float64Array;
  /** end of the hatched part (launch cost), equal to x0 when there is none */
  hatchEnd: Float64Array;
  y: Float32Array;
  h: Float32Array;
  /** 0xRRGGBBAA */
  fill: Uint32Array;
  edge: Uint32Array;
  flags: Uint8Array;
  /** where the uncovered part ends: at x1, or where the next slice of the lane is drawn over it */
  clear: Float64Array;
  tile: Uint32Array;
  row: Uint32Array;
  tiles: Tile[];
}

export interface Paint {
  /** colour of a slice by operator index and name index */
  color: (opId: number, nameId: number) => Rgb;
  lane: Rgb;
  gap: Rgb;
  /** ids in full colour while the rest is dimmed; null dims nothing */
  lit: ReadonlySet<bigint> | null;
  selected: bigint | null;
}

const pack = (c: Rgb, alpha = 255): number =>
  ((Math.round(c[0]) << 24) | (Math.round(c[1]) << 16) | (Math.round(c[2]) << 8) | alpha) >>> 0;

export const unpack = (v: number): Rgb => [(v >>> 24) & 255, (v >>> 16) & 255, (v >>> 8) & 255];

/** How much of a dimmed slice's colour is left. */
const DIM = 0.58;

/**
 * Places the items of tiles. A slice that reaches over several tiles is in each of them: it is taken from the tile its start
 * lies in, or from the first of its track block when it starts before all of them.
 */
export function buildScene(tiles: Tile[], layout: Layout, paint: Paint): Scene {
  const capacity = tiles.reduce((n, t) => n + t.length, 0);
  const scene: Scene = {
    length: 0,
    x0: new Float64Array(capacity),
    x1: new Float64Array(capacity),
    hatchEnd: new Float64Array(capacity),
    y: new Float32Array(capacity),
    h: new Float32Array(capacity),
    fill: new Uint32Array(capacity),
    edge: new Uint32Array(capacity),
    flags: new Uint8Array(capacity),
    clear: new Float64Array(capacity),
    tile: new Uint32Array(capacity),
    row: new Uint32Array(capacity),
    tiles,
  };
  const first = Math.min(...tiles.map((t) => t.range.start));
  const cache = new Map<number, { fill: number; edge: number; dimFill: number; dimEdge: number }>();
  const gapColor = pack(paint.gap);
  const order: number[] = []; // selected slices last, so that their outline is on top
  let n = 0;
  const put = (t: number, i: number): void => {
    const tile = tiles[t]!;
    const row = layout.byTrack.get(tile.track[i]!)!;
    const gap = tile.kind[i] === 1;
    const merged = tile.count[i]! > 1;
    const start = tile.start[i]!;
    const share = merged ? Math.max(0.18, Math.min(1, tile.busy[i]!)) : 1;
    const h = gap ? Math.max(2, row.laneHeight - 4) : Math.max(2, row.laneHeight * share);
    scene.x0[n] = start;
    scene.x1[n] = start + tile.duration[i]!;
    scene.hatchEnd[n] = start + (merged ? 0 : Math.min(tile.launchNs[i]!, tile.duration[i]!));
    scene.y[n] = laneY(row, tile.lane[i]!) + (gap ? 2 : row.laneHeight - h);
    scene.h[n] = h;
    let flags = 0;
    if (gap) {
      flags = FLAG_GAP;
      scene.fill[n] = gapColor;
      scene.edge[n] = gapColor;
    } else {
      const key = (tile.opId[i]! + 1) * 2 ** 24 + tile.nameId[i]! + 1;
      let colors = cache.get(key);
      if (!colors) {
        const fill = paint.color(tile.opId[i]!, tile.nameId[i]!);
        const dim = mix(paint.lane, fill, 1 - DIM);
        colors = {
          fill: pack(fill),
          edge: pack(darker(fill)),
          dimFill: pack(dim),
          dimEdge: pack(mix(dim, fill, 0.35)),
        };
        cache.set(key, colors);
      }
      const id = tile.eventId[i]!;
      const dim = paint.lit !== null && !paint.lit.has(id);
      if (dim) flags |= FLAG_DIM;
      if (tile.estimated[i]) flags |= FLAG_ESTIMATED;
      if (id === paint.selected) flags |= FLAG_SELECTED;
      scene.fill[n] = dim ? colors.dimFill : colors.fill;
      scene.edge[n] = dim ? colors.dimEdge : colors.edge;
    }
    scene.flags[n] = flags;
    scene.tile[n] = t;
    scene.row[n] = i;
    n += 1;
  };
  for (let t = 0; t < tiles.length; t++) {
    const tile = tiles[t]!;
    for (let i = 0; i < tile.length; i++) {
      const start = tile.start[i]!;
      if (start < tile.range.start && tile.range.start !== first) continue;
      if (start >= tile.range.end || !layout.byTrack.has(tile.track[i]!)) continue;
      if (paint.lit?.has(tile.eventId[i]!)) order.push(t, i);
      else put(t, i);
    }
  }
  for (let k = 0; k < order.length; k += 2) put(order[k]!, order[k + 1]!);
  scene.length = n;
  markCovered(scene);
  return scene;
}

/**
 * Slices of one lane may overlap (a stream's calls wait behind each other): finds what of each stays uncovered from its start
 * on, given that later starts are drawn over earlier ones and undimmed slices over dimmed ones.
 */
function markCovered(scene: Scene): void {
  const lanes = new Map<number, number[]>();
  for (let i = 0; i < scene.length; i++) {
    scene.clear[i] = scene.x1[i]!;
    if (scene.flags[i]! & FLAG_GAP) continue;
    const tile = scene.tiles[scene.tile[i]!]!;
    const lane = tile.track[scene.row[i]!]! * 65536 + tile.lane[scene.row[i]!]!;
    const members = lanes.get(lane);
    if (members) members.push(i);
    else lanes.set(lane, [i]);
  }
  for (const members of lanes.values()) {
    members.sort((a, b) => scene.x0[a]! - scene.x0[b]!);
    let litReach = Number.NEGATIVE_INFINITY; // how far the undimmed slices before this one reach
    for (const i of members) {
      if (!(scene.flags[i]! & FLAG_DIM)) litReach = Math.max(litReach, scene.x1[i]!);
      else if (litReach > scene.x0[i]!) scene.clear[i] = scene.x0[i]!;
    }
    let next = Number.POSITIVE_INFINITY;
    let nextLit = Number.POSITIVE_INFINITY;
    for (const i of members.reverse()) {
      const dim = (scene.flags[i]! & FLAG_DIM) !== 0;
      scene.clear[i] = Math.min(scene.clear[i]!, dim ? next : nextLit);
      next = scene.x0[i]!;
      if (!dim) nextLit = next;
    }
  }
}

/** Index of the item under a point (nanoseconds, pixels from the top of the lane area), the nearest within the slack; or -1. */
export function hit(scene: Scene, time: number, y: number, slackNs: number): number {
  let best = -1;
  let distance = Number.POSITIVE_INFINITY;
  for (let i = 0; i < scene.length; i++) {
    const top = scene.y[i]!;
    if (y < top - 1 || y > top + scene.h[i]! + 1) continue;
    const d = time < scene.x0[i]! ? scene.x0[i]! - time : time > scene.x1[i]! ? time - scene.x1[i]! : 0;
    const gap = (scene.flags[i]! & FLAG_GAP) !== 0;
    if (d > slackNs || d > distance) continue;
    if (d === distance && best >= 0 && gap) continue;
    best = i;
    distance = d;
  }
  return best;
}
