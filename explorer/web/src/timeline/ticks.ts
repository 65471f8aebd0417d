/** Ruler ticks in steps of 1, 2 or 5 and in one unit. */

export interface Tick {
  /** nanoseconds, absolute in the profile */
  at: number;
  label: string;
}

const UNITS = [
  { ns: 1, name: "ns" },
  { ns: 1e3, name: "µs" },
  { ns: 1e6, name: "ms" },
  { ns: 1e9, name: "s" },
] as const;

/** Smallest 1-2-5 step in nanoseconds that is at least `ns`; never below one nanosecond. */
export function niceStep(ns: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, ns)));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= ns * 0.999999) return Math.max(1, factor * power);
  return 10 * power;
}

/**
 * Ticks over a range, labelled relative to `zero`, at least `minimumPx` apart. All labels share the unit that suits the
 * largest of them and the decimals that the step needs.
 */
export function ticks(start: number, end: number, zero: number, widthPx: number, minimumPx = 84): Tick[] {
  if (!(end > start) || widthPx <= 0) return [];
  const step = niceStep(((end - start) / widthPx) * minimumPx);
  const largest = Math.max(Math.abs(start - zero), Math.abs(end - zero));
  // the step decides when it is far finer than the position: 1,966.20 µs reads better than 1.96620 ms
  const unit = [...UNITS].reverse().find((u) => largest >= u.ns && step >= u.ns / 100) ?? UNITS[0];
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / unit.ns) - 1e-9));
  const result: Tick[] = [];
  for (let i = Math.ceil((start - zero) / step); zero + i * step <= end; i++) {
    const value = (i * step) / unit.ns;
    const text = value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    result.push({ at: zero + i * step, label: `${i === 0 ? "0" : text} ${unit.name}` });
  }
  return result;
}
