/** Where a roofline's roofs and points lie: logarithmic axes, in units of the drawing. */

import type { Roofline, RooflineRow } from "../types";

export interface Axis {
  /** powers of ten at both ends */
  from: number;
  to: number;
  /** length of the drawing along this axis */
  size: number;
}

export interface Plot {
  x: Axis;
  y: Axis;
  points: { row: RooflineRow; x: number; y: number }[];
  /** corners of the roofs: left end, ridge, right end */
  roof: [number, number][];
}

const log = (value: number): number => Math.log10(value);

/** Position of a value along an axis; y grows downwards. */
export const along = (axis: Axis, value: number): number =>
  ((log(value) - axis.from) / (axis.to - axis.from)) * axis.size;

/** Whole powers of ten that hold all values and some more. */
function axis(values: number[], size: number): Axis {
  const from = Math.floor(Math.min(...values.map(log)) - 0.3);
  return { from, to: Math.max(Math.ceil(Math.max(...values.map(log)) + 0.2), from + 1), size };
}

/** The plot of what has FLOPs and bytes; null when nothing has. */
export function plot(found: Roofline, width: number, height: number): Plot | null {
  const placed = found.rows.filter((r) => (r.intensity ?? 0) > 0 && (r.achieved_flops_per_second ?? 0) > 0);
  if (!placed.length) return null;
  const { flops_per_second: peak, bytes_per_second: bandwidth, ridge } = found.roofs;
  const x = axis([ridge, ...placed.map((r) => r.intensity as number)], width);
  const y = axis([peak, ...placed.map((r) => r.achieved_flops_per_second as number)], height);
  const at = (flopsPerByte: number, flops: number): [number, number] => [
    along(x, flopsPerByte),
    height - along(y, flops),
  ];
  const left = 10 ** x.from;
  const roof = [at(left, bandwidth * left), at(ridge, peak), at(10 ** x.to, peak)];
  const points = placed.map((row) => {
    const [px, py] = at(row.intensity as number, row.achieved_flops_per_second as number);
    return { row, x: px, y: py };
  });
  return { x, y, points, roof };
}

/** Powers of ten on an axis. */
export const ticks = (of: Axis): number[] => Array.from({ length: of.to - of.from + 1 }, (_, i) => of.from + i);
