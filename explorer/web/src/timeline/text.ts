/** Text that fits a given width on a canvas or in a drawing. */

export const SANS = '"Inter Variable", system-ui, sans-serif';
export const MONO = '"JetBrains Mono Variable", ui-monospace, monospace';

const widths = new Map<string, number>();
let context: CanvasRenderingContext2D | null = null;

/** Widths measured before the page's own faces were loaded are those of others. */
export const forgetWidths = (): void => widths.clear();

/** Width in CSS pixels of text in a CSS font, remembered. */
export function textWidth(font: string, text: string): number {
  const key = font + text;
  let width = widths.get(key);
  if (width === undefined) {
    context ??= document.createElement("canvas").getContext("2d")!;
    context.font = font;
    width = context.measureText(text).width;
    if (widths.size > 4000) widths.clear();
    widths.set(key, width);
  }
  return width;
}

/** The text, or its beginning with an ellipsis, of at most `room`; "" when not even three letters and the ellipsis fit. */
export function fitText(text: string, room: number, width: (text: string) => number): string {
  if (width(text) <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (width(`${text.slice(0, middle)}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return low >= 3 ? `${text.slice(0, low).trimEnd()}…` : "";
}
