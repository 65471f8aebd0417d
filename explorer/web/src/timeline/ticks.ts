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
 * Ticks over a range, labelled relative to `zero`, at least `minimumPx` apart. All labels share one unit and the
 * decimals that the step needs.
 */
export function ticks(start: number, end: number, zero: number, widthPx: number, minimumPx = 84): Tick[] {
  if (!(end > start) || widthPx <= 0) return [];
  const step = niceStep(((end - start) / widthPx) * minimumPx);
  const largest = Math.max(Math.abs(start - zero), Math.abs(end - zero));
  // whole numbers while they are short, so 2,400 µs rather than 2.4 ms; far inside a long profile 1,966,204.20 µs
  const whole = UNITS.findLastIndex((u) => step >= u.ns);
  const unit = UNITS.slice(whole).find((u) => largest / u.ns < 1e5) ?? UNITS[UNITS.length - 1]!;
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / unit.ns) - 1e-9));
  const result: Tick[] = [];
  for (let i = Math.ceil((start - zero) / step); zero + i * step <= end; i++) {
    const value = (i * step) / unit.ns;
    const text = value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    result.push({ at: zero + i * step, label: `${i === 0 ? "0" : text} ${unit.name}` });
  }
  return result;
}
