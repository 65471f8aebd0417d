/**
 * Colours of names and themes. The same name has the same colour in every view and profile: each name prefers the hue its
 * hash gives and takes the next free one when that is taken. Names are given out in a fixed order (state.ts: the operators
 * of each opened profile by device time), so that reloading changes nothing.
 */

export type Rgb = readonly [number, number, number];
export type ThemeName = "light" | "dark";

/**
 * Okabe-Ito-like hues (blue, green, orange, purple, vermillion, sky, pink, olive), tuned so that each has 3:1 against its
 * theme's lanes and text on it, white or on orange black, has 4.5:1.
 */
const HUES: Record<ThemeName, readonly string[]> = {
  light: ["#2f72d6", "#0a8460", "#c98100", "#9f4bc4", "#c4500f", "#147a9d", "#c43f79", "#717600"],
  dark: ["#3a72da", "#0b8560", "#d9970f", "#a24ec8", "#c45110", "#127da3", "#c6437c", "#757a10"],
};

export const HUE_COUNT = HUES.light.length;
const SHADES = 3;

/** What the canvases are drawn with; the names that style.css has too have its values. */
export const THEMES: Record<
  ThemeName,
  Record<"page" | "lane" | "text" | "dim" | "accent" | "neutral" | "gap" | "grid", string>
> = {
  light: {
    page: "#ffffff",
    lane: "#fafbfd",
    text: "#1b2130",
    dim: "#5d6779",
    accent: "#175fe6",
    neutral: "#6f7a8c",
    gap: "#aab3c2",
    grid: "#dfe3ea",
  },
  dark: {
    page: "#11151b",
    lane: "#151a21",
    text: "#dfe5ee",
    dim: "#939eb0",
    accent: "#6fa8ff",
    neutral: "#7f8a9c",
    gap: "#4a5464",
    grid: "#2b323d",
  },
};

export function rgb(hex: string): Rgb {
  const n = Number.parseInt(hex.slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

export const css = (c: Rgb): string => `rgb(${Math.round(c[0])} ${Math.round(c[1])} ${Math.round(c[2])})`;

/** Linear mix: 0 is `a`, 1 is `b`. */
export const mix = (a: Rgb, b: Rgb, share: number): Rgb => [
  a[0] + (b[0] - a[0]) * share,
  a[1] + (b[1] - a[1]) * share,
  a[2] + (b[2] - a[2]) * share,
];

/** Outline of the same hue, 40 % darker. */
export const darker = (c: Rgb): Rgb => mix(c, [0, 0, 0], 0.4);

function luminance(c: Rgb): number {
  const linear = c.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0]! + 0.7152 * linear[1]! + 0.0722 * linear[2]!;
}

/** WCAG contrast ratio, 1 to 21. */
export function contrast(a: Rgb, b: Rgb): number {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high! + 0.05) / (low! + 0.05);
}

const WHITE: Rgb = [255, 255, 255];
const BLACK: Rgb = [5, 8, 12];

/** White or near-black, whichever reads better on the fill; white when it is good enough. */
export const textOn = (fill: Rgb): Rgb =>
  contrast(WHITE, fill) >= 4.5 || contrast(WHITE, fill) > contrast(BLACK, fill) ? WHITE : BLACK;

export function hash(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  h ^= h >>> 15; // FNV's low bits alone are poor for short, similar names
  return h >>> 0;
}

/** Hues of operators that most profiles have, so that pictures of different people agree; other names go by hash. */
const USUAL: Readonly<Record<string, number>> = {
  "aten::mul": 0,
  "aten::add": 1,
  "aten::mean": 2,
  "aten::rsqrt": 3,
  "aten::mm": 5,
  "aten::addmm": 5,
  "aten::bmm": 5,
  "aten::copy_": 7,
};

/** Frames of the host's stack (Python functions, modules, steps) and waits are not operators: grey, so that operators stand out. */
const FRAME = /\.py\(\d+\)|^<.*>\(\d*\)|^<built-in |^nn\.Module: |^ProfilerStep#|synchronize/i;

/** "aten::mul.Tensor" and "aten::mul" are one operator. */
export const baseName = (name: string): string => name.replace(/^(\w+::\w+)\.\w+$/, "$1");

/** Slots of names: eight hues, then two shades of them; a slot never changes once given. */
export class ColorBook {
  private readonly slots = new Map<string, number>();
  private readonly used = new Set<number>();

  slot(name: string): number {
    const key = baseName(name);
    const known = this.slots.get(key);
    if (known !== undefined) return known;
    const preferred = key.startsWith("Torch-Compiled Region") ? 4 : (USUAL[key] ?? hash(key) % HUE_COUNT);
    const ring = Math.min(Math.floor(this.used.size / HUE_COUNT), SHADES - 1) * HUE_COUNT;
    let slot = ring + preferred;
    for (let i = 1; i < HUE_COUNT && this.used.has(slot); i++) slot = ring + ((preferred + i) % HUE_COUNT);
    this.slots.set(key, slot);
    this.used.add(slot);
    return slot;
  }

  color(name: string | null | undefined, theme: ThemeName): Rgb {
    if (!name || FRAME.test(name)) return rgb(THEMES[theme].neutral);
    return slotColor(this.slot(name), theme);
  }
}

/** Colour of a slot: eight hues, then two shades of each that keep their contrast with the theme's lanes. */
export function slotColor(slot: number, theme: ThemeName): Rgb {
  const hues = HUES[theme];
  const base = rgb(hues[slot % hues.length]!);
  const ring = Math.floor(slot / hues.length) % SHADES;
  if (ring === 0) return base;
  if (theme === "dark") return mix(base, [255, 255, 255], ring * 0.2);
  return ring === 1 ? mix(base, [0, 0, 0], 0.25) : mix(base, [255, 255, 255], 0.15);
}
