/** Where tracks and their lanes lie, in pixels from the top of the lane area. */

import type { ProfileCard, Track } from "../types";

export interface Row {
  kind: "group" | "track";
  key: string;
  label: string;
  track: Track | null;
  top: number;
  height: number;
  laneHeight: number;
  laneGap: number;
  laneTop: number;
  /** deep stacks are drawn flat until they are opened, so that the device lanes stay in sight */
  deep: boolean;
  open: boolean;
}

export interface Layout {
  rows: Row[];
  byTrack: Map<number, Row>;
  height: number;
}

const LANE_GAP = 3;
const DEEP_LANES = 6;
const FLAT_HEIGHT = 60;
const FLAT_STREAM_HEIGHT = 36;
const GROUP_HEIGHT = 22;
/** Least height of a row and room above and below its lanes. */
const ROOMY = { row: 51, padding: 10 };
const COMPACT = { row: 40, padding: 4 };
const BLOCK = 32;

function laneHeight(track: Track): number {
  if (track.kind === "device") return track.lanes > 3 ? 18 : 24;
  if (track.lanes === 1) return 20;
  return track.lanes > 3 ? 13 : 14;
}

/**
 * Places groups and tracks; `folded` groups show no tracks, `opened` tracks show every lane at full height, `compact` moves
 * rows closer together without making lanes lower.
 */
export function layoutOf(
  groups: ProfileCard["groups"],
  folded: ReadonlySet<string>,
  opened: ReadonlySet<number> = new Set(),
  compact = false,
): Layout {
  const room = compact ? COMPACT : ROOMY;
  const rows: Row[] = [];
  const byTrack = new Map<number, Row>();
  let top = 0;
  for (const group of groups) {
    rows.push({
      kind: "group",
      key: group.label,
      label: group.label,
      track: null,
      top,
      height: GROUP_HEIGHT,
      laneHeight: 0,
      laneGap: 0,
      laneTop: 0,
      deep: false,
      open: true,
    });
    top += GROUP_HEIGHT;
    if (folded.has(group.label)) continue;
    for (const track of group.tracks) {
      const lanes = Math.max(1, track.lanes);
      const deep = lanes >= DEEP_LANES;
      const open = !deep || opened.has(track.id);
      const flat = track.kind === "stream" ? FLAT_STREAM_HEIGHT : FLAT_HEIGHT;
      const lane = open ? laneHeight(track) : Math.max(2, Math.floor(flat / lanes) - 1);
      const laneGap = open ? LANE_GAP : lane > 2 ? 1 : 0;
      const content = lanes * lane + (lanes - 1) * laneGap;
      const height = Math.max(room.row, content + 2 * room.padding);
      const row: Row = {
        kind: "track",
        key: String(track.id),
        label: track.label,
        track,
        top,
        height,
        laneHeight: lane,
        laneGap,
        deep,
        open,
        laneTop: top + Math.round((height - content) / 2),
      };
      rows.push(row);
      byTrack.set(track.id, row);
      top += height;
    }
  }
  return { rows, byTrack, height: top };
}

/** Top of a lane's slices. */
export const laneY = (row: Row, lane: number): number => row.laneTop + lane * (row.laneHeight + row.laneGap);

/** Tracks in fetch blocks, in drawing order. */
export function blocksOf(layout: Layout): number[][] {
  const tracks = layout.rows.flatMap((row) => (row.track ? [row.track.id] : []));
  const blocks: number[][] = [];
  for (let i = 0; i < tracks.length; i += BLOCK) blocks.push(tracks.slice(i, i + BLOCK));
  return blocks;
}

/** Numbers of the blocks with a row inside the vertical window. */
export function visibleBlocks(layout: Layout, blocks: number[][], top: number, bottom: number): number[] {
  return blocks.flatMap((tracks, i) =>
    tracks.some((id) => {
      const row = layout.byTrack.get(id)!;
      return row.top < bottom && row.top + row.height > top;
    })
      ? [i]
      : [],
  );
}
