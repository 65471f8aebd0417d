/** The rows of the step split, arranged as one bar per step and rank. Pure, so that it can be tested without a page. */

import type { SplitRow } from "../types";

/** Categories in the order they are stacked, in words, and the hue of those in which the device works. */
export const CATEGORIES: readonly { name: string; text: string; hue: number | null }[] = [
  { name: "compute", text: "computing", hue: 0 },
  { name: "communication", text: "exposed communication", hue: 3 },
  { name: "memory_copy", text: "exposed copies", hue: 1 },
  { name: "launch_cost", text: "launch cost", hue: 2 },
  { name: "other_step", text: "work of other steps", hue: 5 },
  { name: "host_late", text: "host late", hue: null },
  { name: "launch_latency", text: "launch latency", hue: null },
  { name: "queued", text: "queued, not started", hue: null },
  { name: "execution_gap", text: "the device's gap between executions", hue: null },
  { name: "sync", text: "synchronization", hue: null },
  { name: "stream", text: "waiting for a stream", hue: null },
  { name: "no_more_work", text: "after the last device work", hue: null },
  { name: "outside_operators", text: "outside operators", hue: null },
  { name: "unknown", text: "idle, cause unknown", hue: null },
];

const ORDER = new Map(CATEGORIES.map((c, i) => [c.name, i]));

export interface Bar {
  step: number;
  rank: number;
  label: string;
  span_ns: number;
  parts: { name: string; time_ns: number; from: number; to: number }[];
}

/** One bar per step and rank; parts from left to right, `from` and `to` as shares of the step's span. */
export function bars(rows: readonly SplitRow[]): Bar[] {
  const found = new Map<string, SplitRow[]>();
  for (const row of rows) {
    const key = `${row.step}/${row.rank}`;
    found.set(key, [...(found.get(key) ?? []), row]);
  }
  const ranked = rows.some((r) => r.rank >= 0) && new Set(rows.map((r) => r.rank)).size > 1;
  return [...found.values()].map((parts) => {
    const { step, rank, span_ns } = parts[0]!;
    let at = 0;
    const placed = [...parts]
      .sort((a, b) => (ORDER.get(a.category) ?? 99) - (ORDER.get(b.category) ?? 99))
      .map((p) => {
        const from = at;
        at += p.time_ns / Math.max(1, p.span_ns);
        return { name: p.category, time_ns: p.time_ns, from, to: at };
      });
    const label = `${step < 0 ? "all" : `step ${step}`}${ranked ? ` · rank ${rank}` : ""}`;
    return { step, rank, label, span_ns, parts: placed };
  });
}

/** Time of each category over all bars, in stacking order. */
export function totals(rows: readonly SplitRow[]): { name: string; text: string; time_ns: number; share: number }[] {
  const time = new Map<string, number>();
  for (const row of rows) time.set(row.category, (time.get(row.category) ?? 0) + row.time_ns);
  const span = Math.max(
    1,
    bars(rows).reduce((sum, b) => sum + b.span_ns, 0),
  );
  return CATEGORIES.filter((c) => time.has(c.name)).map((c) => ({
    name: c.name,
    text: c.text,
    time_ns: time.get(c.name)!,
    share: time.get(c.name)! / span,
  }));
}
