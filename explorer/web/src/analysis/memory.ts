/** The memory curve as steps of a picture: the value stays until the next piece that has samples. */

import type { CurveRow } from "../types";

export interface Curve {
  label: string;
  peak: number;
  /** SVG path in a box of `width` × `height`, time to the right, bytes up */
  path: string;
}

const label = (row: CurveRow): string =>
  `${row.rank >= 0 ? `rank ${row.rank} ` : ""}${row.place === row.series ? row.place : `${row.place}, ${row.series}`}`;

/** The curves with the largest peaks, at most `most`, all at one scale. */
export function curves(rows: readonly CurveRow[], span: number, width: number, height: number, most = 4): Curve[] {
  const found = new Map<string, CurveRow[]>();
  for (const row of rows) found.set(label(row), [...(found.get(label(row)) ?? []), row]);
  const peak = (list: CurveRow[]): number => list.reduce((top, r) => Math.max(top, r.peak_bytes), 0);
  const chosen = [...found].sort((a, b) => peak(b[1]) - peak(a[1])).slice(0, most);
  const top = Math.max(1, ...chosen.map(([, list]) => peak(list)));
  const x = (at: number): string => ((Math.min(Math.max(at, 0), span) / Math.max(1, span)) * width).toFixed(1);
  const y = (bytes: number): string => (height - (Math.max(0, bytes) / top) * height).toFixed(1);
  return chosen.map(([name, list]) => {
    const parts = list.map((r, i) => {
      const next = list[i + 1]?.start_ts ?? span;
      return `${i ? "L" : "M"}${x(r.start_ts)} ${y(r.peak_bytes)}V${y(r.last_bytes)}H${x(next)}`;
    });
    return { label: name, peak: peak(list), path: parts.join("") };
  });
}
