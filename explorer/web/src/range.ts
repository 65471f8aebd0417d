/** Arithmetic on the visible time range. */

import type { Range } from "./types";

/** Nothing is shorter than a nanosecond, so a view of a few is as deep as it goes. */
export const MINIMUM_SPAN_NS = 20;

/** Shifts and shrinks a range into the bounds, with a margin of 4 % of the bounds on both sides; spans at least the minimum. */
export function clampRange(range: Range, bounds: Range): Range {
  const margin = (bounds.end - bounds.start) * 0.04 + 10;
  const low = bounds.start - margin;
  const high = bounds.end + margin;
  const span = Math.min(Math.max(range.end - range.start, MINIMUM_SPAN_NS), high - low);
  const middle = (range.start + range.end) / 2;
  const start = Math.min(Math.max(middle - span / 2, low), high - span);
  return { start, end: start + span };
}

/** Zooms by a factor (above 1 shows more time) so that `anchor` keeps its place on screen. */
export function zoomRange(range: Range, factor: number, anchor: number): Range {
  return { start: anchor - (anchor - range.start) * factor, end: anchor + (range.end - anchor) * factor };
}

/** Same zoom, the slice in the middle; the start of one that is wider than the view at a fifth of it. */
export function recentre(range: Range, slice: Range): Range {
  const span = range.end - range.start;
  const start = slice.end - slice.start > span ? slice.start - span * 0.2 : (slice.start + slice.end) / 2 - span / 2;
  return { start, end: start + span };
}

/** The slice fills most of the view. */
export function fitTo(slice: Range, share = 0.8): Range {
  const extra = ((slice.end - slice.start) * (1 / share - 1)) / 2 + 1;
  return { start: slice.start - extra, end: slice.end + extra };
}
