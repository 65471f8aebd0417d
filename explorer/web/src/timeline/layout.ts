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
  laneTop: number;
}

export interface Layout {
  rows: Row[];
  byTrack: Map<number, Row>;
  height: number;
}

export const LANE_GAP = 3;
const GROUP_HEIGHT = 26;
const MINIMUM_ROW = 54;
const PADDING = 12;
const BLOCK = 32;

function laneHeight(track: Track): number {
  if (track.kind === "device") return track.lanes > 3 ? 18 : 24;
  if (track.lanes === 1) return 20;
  return track.lanes > 4 ? 11 : 14;
}

export function layoutOf(groups: ProfileCard["groups"], folded: ReadonlySet<string>): Layout {
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
      laneTop: 0,
    });
    top += GROUP_HEIGHT;
    if (folded.has(group.label)) continue;
    for (const track of group.tracks) {
      const lane = laneHeight(track);
      const lanes = Math.max(1, track.lanes);
      const content = lanes * lane + (lanes - 1) * LANE_GAP;
      const height = Math.max(MINIMUM_ROW, content + 2 * PADDING);
      const row: Row = {
        kind: "track",
        key: String(track.id),
        label: track.label,
        track,
        top,
        height,
        laneHeight: lane,
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
export const laneY = (row: Row, lane: number): number => row.laneTop + lane * (row.laneHeight + LANE_GAP);

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
