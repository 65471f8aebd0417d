/** Numbers as people read them: three significant digits in tables, nanoseconds in details, never a float in between. */

const UNITS = [
  { limit: 1e3, divisor: 1, unit: "ns" },
  { limit: 1e6, divisor: 1e3, unit: "µs" },
  { limit: 1e9, divisor: 1e6, unit: "ms" },
  { limit: Number.POSITIVE_INFINITY, divisor: 1e9, unit: "s" },
] as const;

/** Three significant digits; whole numbers above keep theirs. */
function digits(value: number): string {
  const magnitude = Math.floor(Math.log10(Math.abs(value) || 1));
  const decimals = Math.max(0, Math.min(9, 2 - magnitude));
  const text = fixed(value, decimals);
  // 9.996 rounds up to 10.00: one digit too many
  return Math.abs(Number(text)) >= 10 ** (magnitude + 1) && decimals > 0 ? fixed(value, decimals - 1) : text;
}

/** toFixed that takes 2.355 as written, not as the nearest double below it. */
function fixed(value: number, decimals: number): string {
  const scale = 10 ** decimals;
  return (Math.round(Number((value * scale).toPrecision(14))) / scale).toFixed(decimals);
}

/** "2.36 ms" from nanoseconds, in three significant digits; `≈` in front of what rests on an estimate. */
export function duration(ns: number | null | undefined, options: { estimated?: boolean } = {}): string {
  if (ns === null || ns === undefined) return "–";
  const mark = options.estimated ? "≈ " : "";
  const size = Math.abs(ns);
  if (size < 1) return `${mark}0 ns`;
  let index = UNITS.findIndex((u) => size < u.limit);
  let text = digits(ns / UNITS[index]!.divisor);
  if (Math.abs(Number(text)) >= 1000 && index < UNITS.length - 1) {
    index += 1;
    text = digits(ns / UNITS[index]!.divisor);
  }
  return `${mark}${index === 0 ? Math.round(ns) : text} ${UNITS[index]!.unit}`;
}

/** "1,966,204 ns": every digit. */
export function nanoseconds(ns: number): string {
  return `${Math.round(ns).toLocaleString("en-US")} ns`;
}

/** Signed, in full microseconds with three decimals, so that a column of terms can be added by eye: "−1,925.000 µs". */
export function signedMicroseconds(ns: number): string {
  const value = Math.abs(Math.round(ns));
  const whole = Math.floor(value / 1000).toLocaleString("en-US");
  const sign = ns < 0 ? "−" : ns > 0 ? "+" : "";
  return `${sign}${whole}.${String(value % 1000).padStart(3, "0")} µs`;
}

/** "36.5 KiB". */
export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let index = 0;
  while (value >= 1024 && index < units.length - 1) {
    value /= 1024;
    index += 1;
  }
  return `${index === 0 ? value : digits(value)} ${units[index]}`;
}

/** "49.5 %". */
export function percent(share: number | null): string {
  return share === null ? "–" : `${(share * 100).toFixed(1)} %`;
}

/** "78.6 T" with an SI prefix, for FLOP/s and B/s. */
export function si(value: number): string {
  const prefixes = ["", "k", "M", "G", "T", "P", "E"];
  let index = 0;
  let scaled = value;
  while (Math.abs(scaled) >= 1000 && index < prefixes.length - 1) {
    scaled /= 1000;
    index += 1;
  }
  return `${digits(scaled)} ${prefixes[index]}`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;
}

/** A Markdown table; cells are escaped. */
export function markdownTable(head: string[], rows: string[][]): string {
  const line = (cells: string[]): string => `| ${cells.map((c) => c.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

/** The server writes "385 us" so that any terminal can show it; the page has the letter. */
export const pretty = (text: string): string => text.replace(/(\d) us\b/g, "$1 µs");
