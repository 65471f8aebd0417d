/** The timeline's canvases: which tiles are shown, what is drawn each frame, what lies under the pointer. */

import { css, type Rgb, rgb, THEMES, type ThemeName, textOn } from "../colors";
import { duration } from "../format";
import type { Chain, Overview, ProfileCard, Range } from "../types";
import { arrowsOf, drawArrow } from "./arrows";
import { blocksOf, type Layout, laneY, visibleBlocks } from "./layout";
import { createRenderer, type Renderer, resizeCanvas, type Viewport } from "./renderer";
import { buildScene, FLAG_DIM, FLAG_GAP, hit, type Scene, unpack } from "./scene";
import { fitText, forgetWidths, MONO, SANS, textWidth } from "./text";
import { ticks } from "./ticks";
import type { Tile } from "./tile";
import { keyText, TILE_PX, TileCache, type TileKey, tileRange, tilesFor } from "./tiles";

export interface Item {
  /** id of the slice (the longest of a merged item) or of the gap */
  id: string;
  gap: boolean;
  name: string;
  op: string | null;
  track: number;
  lane: number;
  start: number;
  duration: number;
  launch: number;
  count: number;
  busy: number;
  estimated: boolean;
}

export interface Inputs {
  card: ProfileCard;
  layout: Layout;
  visible: Range;
  /** the scope; its start is the ruler's zero */
  home: Range;
  /** what the overview spans */
  homeView: Range;
  whole: Range;
  chain: Chain | null;
  selected: string | null;
  selectedGap: string | null;
  theme: ThemeName;
  colour: (op: string | null, name: string) => Rgb;
  overview: Overview | null;
  hover: Item | null;
  /** start before end */
  measure: Range | null;
  measureText: string;
  marks: readonly { at: number }[];
  /** time range being dragged on ruler or overview */
  brush: Range | null;
}

export interface Canvases {
  overview: HTMLCanvasElement;
  ruler: HTMLCanvasElement;
  under: HTMLCanvasElement;
  slices: HTMLCanvasElement;
  overlay: HTMLCanvasElement;
}

/** `?renderer=2d` or `webgl2`, read before the address is rewritten to what a link carries. */
const ASKED = new URLSearchParams(location.search).get("renderer");
export interface Timeline {
  update(inputs: Inputs): void;
  resize(width: number, height: number): void;
  scroll(top: number): void;
  /** asks once more for what failed */
  retry(): void;
  itemAt(x: number, y: number): Item | null;
  timeAt(x: number): number;
  /** where the waits of the chain's arrows are written, in client coordinates */
  labels(): { x: number; y: number; width: number; height: number }[];
  countIn(range: Range): number;
  visibleItems(): (Item & { rect: { x: number; y: number; width: number; height: number } })[];
  idle(): boolean;
  readonly renderer: string;
  dispose(): void;
}

export function createTimeline(
  canvases: Canvases,
  fetchTile: (profile: string, range: Range, width: number, tracks: number[]) => Promise<Tile>,
  failed: (error: unknown) => void,
  ready: (complete: boolean) => void = () => {},
): Timeline {
  const renderer: Renderer = createRenderer(canvases.slices, ASKED);
  let inputs: Inputs | null = null;
  let blocks: number[][] = [];
  let cache: TileCache | null = null;
  let scene: Scene | null = null;
  let sceneKey = "";
  let paintKey: readonly unknown[] = [];
  let complete = false;
  let width = 0;
  let height = 0;
  let scrollTop = 0;
  let frame = 0;
  let drawnOnce = false;
  const textColors = new Map<number, string>();
  let labels: { x: number; y: number; width: number; height: number }[] = [];

  const redraw = (): void => {
    if (!frame) frame = requestAnimationFrame(draw);
  };
  const view = (): Viewport => ({
    start: inputs!.visible.start,
    nsPerPx: (inputs!.visible.end - inputs!.visible.start) / Math.max(1, width),
    scrollTop,
    width,
    height,
    ratio: devicePixelRatio || 1,
  });

  const itemOf = (s: Scene, i: number): Item => {
    const tile = s.tiles[s.tile[i]!]!;
    const row = s.row[i]!;
    const names = inputs!.card.names;
    return {
      id: String(tile.eventId[row]!),
      gap: tile.kind[row] === 1,
      name: names[tile.nameId[row]!] ?? "",
      op: names[tile.opId[row]!] ?? null,
      track: tile.track[row]!,
      lane: tile.lane[row]!,
      start: tile.start[row]!,
      duration: tile.duration[row]!,
      launch: tile.launchNs[row]!,
      count: tile.count[row]!,
      busy: tile.busy[row]!,
      estimated: tile.estimated[row] === 1,
    };
  };

  const refreshScene = (): void => {
    const i = inputs!;
    const wanted = tilesFor(i.visible, width, visibleBlocks(i.layout, blocks, scrollTop, scrollTop + height), i.whole);
    complete = cache!.want(wanted);
    const key = wanted.map(keyText).join(" ");
    const paint = [i.layout, i.chain, i.selected, i.theme, i.colour] as const;
    const stale = paint.some((value, at) => value !== paintKey[at]);
    let tiles: Tile[] | null = null;
    if (complete && (key !== sceneKey || !scene)) tiles = wanted.map((k) => cache!.get(k)!);
    else if (stale && scene) tiles = scene.tiles;
    if (tiles) {
      const lit = i.selected ? new Set([BigInt(i.selected)]) : null;
      if (lit && i.chain?.events.some((e) => e.id === i.selected))
        for (const e of i.chain.events) lit.add(BigInt(e.id));
      const names = i.card.names;
      scene = buildScene(tiles, i.layout, {
        color: (op, name) => i.colour(names[op] ?? null, names[name] ?? ""),
        lane: rgb(THEMES[i.theme].lane),
        gap: rgb(THEMES[i.theme].gap),
        lit,
        selected: i.selected ? BigInt(i.selected) : null,
      });
      if (complete) sceneKey = key;
      paintKey = paint;
    }
    if (complete && wanted.length) {
      // what a pan would need next
      const around: TileKey[] = [];
      for (const k of wanted)
        for (const index of [k.index - 1, k.index + 1]) {
          const r = tileRange({ ...k, index });
          if (r.end > i.whole.start && r.start < i.whole.end) around.push({ ...k, index });
        }
      cache!.prefetch(around);
    }
  };

  const measureText = (g: CanvasRenderingContext2D, text: string): number => textWidth(g.font, text);

  const prepare = (canvas: HTMLCanvasElement, w: number, h: number): CanvasRenderingContext2D => {
    const ratio = devicePixelRatio || 1;
    resizeCanvas(canvas, { width: w, height: h, ratio });
    const g = canvas.getContext("2d")!;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    return g;
  };

  const drawRuler = (v: Viewport): number[] => {
    const i = inputs!;
    const c = THEMES[i.theme];
    const h = canvases.ruler.clientHeight;
    const g = prepare(canvases.ruler, width, h);
    g.font = `400 11px ${MONO}`;
    g.textBaseline = "middle";
    const marks = ticks(i.visible.start, i.visible.end, i.home.start, width);
    const xs: number[] = [];
    for (const t of marks) {
      const x = (t.at - v.start) / v.nsPerPx;
      xs.push(x);
      g.fillStyle = c.grid;
      g.fillRect(Math.round(x), h - 6, 1, 6);
      g.fillStyle = c.dim;
      if (x + 4 + measureText(g, t.label) < width) g.fillText(t.label, x + 4, h / 2 - 1);
    }
    if (i.brush) drawBand(g, i.brush, v, h);
    return xs;
  };
  const drawBand = (g: CanvasRenderingContext2D, r: Range, v: Pick<Viewport, "start" | "nsPerPx">, h: number): void => {
    const c = THEMES[inputs!.theme];
    const a = (Math.min(r.start, r.end) - v.start) / v.nsPerPx;
    const b = (Math.max(r.start, r.end) - v.start) / v.nsPerPx;
    g.fillStyle = `${c.accent}1e`;
    g.fillRect(a, 0, b - a, h);
    g.fillStyle = c.accent;
    g.fillRect(a, 0, 1, h);
    g.fillRect(b - 1, 0, 1, h);
  };

  const drawOverview = (): void => {
    const i = inputs!;
    const c = THEMES[i.theme];
    const h = canvases.overview.clientHeight;
    const g = prepare(canvases.overview, width, h);
    g.fillStyle = c.lane;
    g.fillRect(0, 4, width, h - 8);
    const tracks = i.overview?.tracks ?? [];
    const bandH = tracks.length ? Math.min(11, (h - 12) / tracks.length - 1) : 0;
    tracks.forEach((track, t) => {
      const n = track.busy.length;
      if (!n) return;
      const top = 6 + t * (bandH + 2);
      const step = width / n;
      for (let x = 0; x < n; x++) {
        const busy = track.busy[x]!;
        if (busy <= 0) continue;
        const name = i.card.names[track.name_id[x] ?? -1] ?? null;
        g.fillStyle = css(i.colour(name, name ?? ""));
        const barH = Math.max(1.5, bandH * Math.min(1, busy));
        g.fillRect(x * step, top + bandH - barH, step + 0.5, barH);
      }
    });
    const home = { start: i.homeView.start, nsPerPx: (i.homeView.end - i.homeView.start) / Math.max(1, width) };
    const a = Math.max(0, (i.visible.start - home.start) / home.nsPerPx);
    const b = Math.min(width, (i.visible.end - home.start) / home.nsPerPx);
    if (b - a < width - 2) {
      g.fillStyle = i.theme === "dark" ? "rgb(13 16 21 / 0.62)" : "rgb(236 239 244 / 0.72)";
      g.fillRect(0, 0, Math.max(0, a), h);
      g.fillRect(Math.min(width, b), 0, width, h);
      g.strokeStyle = c.accent;
      g.lineWidth = 1.5;
      g.beginPath();
      g.roundRect(Math.min(a, width - 4) + 0.75, 0.75, Math.max(4, b - a) - 1.5, h - 1.5, 3);
      g.stroke();
    }
    if (i.brush) drawBand(g, i.brush, home, h);
  };

  const drawUnder = (v: Viewport, marks: number[]): void => {
    const i = inputs!;
    const c = THEMES[i.theme];
    const g = prepare(canvases.under, width, height);
    g.fillStyle = c.lane;
    for (const row of i.layout.rows) {
      if (row.kind === "group") continue;
      const y = row.laneTop - v.scrollTop - 4;
      if (y > height || y + row.height < 0) continue;
      g.fillRect(0, y, width - 14, row.height - 2 * (row.laneTop - row.top) + 8);
    }
    g.fillStyle = c.grid;
    const bottom = Math.min(height, i.layout.height - v.scrollTop);
    for (const x of marks) for (let y = -(v.scrollTop % 5); y < bottom; y += 5) g.fillRect(Math.round(x), y, 1, 1.5);
  };

  const drawText = (g: CanvasRenderingContext2D, s: Scene, v: Viewport): void => {
    const i = inputs!;
    g.textBaseline = "middle";
    const names = i.card.names;
    for (let n = 0; n < s.length; n++) {
      if (s.flags[n]! & FLAG_GAP) continue;
      const left = Math.max(0, (s.x0[n]! - v.start) / v.nsPerPx);
      const right = Math.min(width, (s.clear[n]! - v.start) / v.nsPerPx);
      if (right - left < 30) continue;
      const y = s.y[n]! - v.scrollTop;
      const h = s.h[n]!;
      if (y > height || y + h < 0 || h < 11) continue;
      const tile = s.tiles[s.tile[n]!]!;
      const row = s.row[n]!;
      if (tile.count[row]! > 1) continue;
      const track = i.layout.byTrack.get(tile.track[row]!)!.track!;
      const device = track.kind === "device" || track.kind === "copy";
      const text = (device ? names[tile.opId[row]!] : undefined) ?? names[tile.nameId[row]!] ?? "";
      let color = textColors.get(s.fill[n]!);
      if (!color) {
        color = css(textOn(unpack(s.fill[n]!)));
        textColors.set(s.fill[n]!, color);
      }
      g.fillStyle = s.flags[n]! & FLAG_DIM ? THEMES[i.theme].text : color;
      const time = `${tile.estimated[row] ? "≈ " : ""}${duration(tile.duration[row]!)}`;
      const small = h < 14;
      g.font = `500 ${small ? 10 : 11}px ${MONO}`;
      const timeWidth = measureText(g, time);
      const middle = y + h / 2 + 0.5;
      const room = right - left - 16;
      g.font = `500 ${small ? 10.5 : 11.5}px ${SANS}`;
      const whole = measureText(g, text);
      const withTime = s.clear[n] === s.x1[n] && whole + timeWidth + 14 <= room;
      const shown = withTime ? text : fitText(text, room + 6, (t) => measureText(g, t));
      g.fillText(shown, left + 8, middle);
      if (withTime) {
        g.font = `500 ${small ? 10 : 11}px ${MONO}`;
        g.fillText(time, right - 8 - timeWidth, middle);
      }
    }
  };

  const drawOverlay = (v: Viewport): void => {
    const i = inputs!;
    const c = THEMES[i.theme];
    const g = prepare(canvases.overlay, width, height);
    if (scene) drawText(g, scene, v);
    const toX = (ns: number): number => (ns - v.start) / v.nsPerPx;
    labels = [];
    g.fillStyle = c.accent;
    for (const mark of i.marks) for (let y = 0; y < height; y += 7) g.fillRect(Math.round(toX(mark.at)), y, 1, 4);
    const outline = (start: number, end: number, y: number, h: number, line: number): void => {
      const a = Math.max(-6, toX(start));
      const b = Math.min(width + 6, Math.max(toX(end), toX(start) + 2));
      g.strokeStyle = c.accent;
      g.lineWidth = line;
      g.beginPath();
      g.roundRect(a - 1, y - 1, b - a + 2, h + 2, 3.5);
      g.stroke();
    };
    const chosen = i.chain?.events.find((e) => e.id === i.selected);
    if (chosen) {
      const row = i.layout.byTrack.get(chosen.track_id);
      if (row) outline(chosen.start, chosen.end, laneY(row, chosen.lane) - v.scrollTop, row.laneHeight, 2);
    }
    if (i.hover || i.selectedGap) {
      for (let n = 0; scene && n < scene.length; n++) {
        const tile = scene.tiles[scene.tile[n]!]!;
        const id = tile.eventId[scene.row[n]!]!.toString();
        const gap = (scene.flags[n]! & FLAG_GAP) !== 0;
        const hovered = i.hover?.id === id && i.hover.gap === gap && i.hover.track === tile.track[scene.row[n]!];
        if (hovered || (gap && i.selectedGap === id))
          outline(scene.x0[n]!, scene.x1[n]!, scene.y[n]! - v.scrollTop, scene.h[n]!, hovered ? 1 : 2);
      }
    }
    if (i.chain && i.selected && chosen) {
      const arrows = arrowsOf(i.chain, toX, (event) => {
        const row = i.layout.byTrack.get(event.track_id);
        return row ? { top: laneY(row, event.lane) - v.scrollTop, height: row.laneHeight } : null;
      });
      for (const arrow of arrows) drawArrow(g, arrow, c.accent);
      const labelled = new Set<number>();
      for (const arrow of arrows) {
        const room = Math.abs(arrow.to.x - arrow.from.x);
        if (room > 110 && arrow.waitNs > 0 && !labelled.has(arrow.waitNs)) {
          labelled.add(arrow.waitNs);
          g.font = `500 11px ${MONO}`;
          const text = duration(arrow.waitNs);
          const w = measureText(g, text) + 10;
          const x = (arrow.from.x + arrow.to.x) / 2 - w / 2;
          const y = (arrow.from.y + arrow.to.y) / 2;
          labels.push({ x, y: y - 9, width: w, height: 16 });
          g.fillStyle = THEMES[i.theme].lane;
          g.beginPath();
          g.roundRect(x, y - 9, w, 16, 4);
          g.fill();
          g.fillStyle = c.accent;
          g.textBaseline = "middle";
          g.fillText(text, x + 5, y - 1);
        }
      }
    }
    if (i.measure) {
      drawBand(g, i.measure, v, height);
      const text = i.measureText;
      g.font = `600 12px ${MONO}`;
      const w = measureText(g, text) + 16;
      const x = Math.max(4, Math.min(width - w - 4, toX((i.measure.start + i.measure.end) / 2) - w / 2));
      g.fillStyle = c.accent;
      g.beginPath();
      g.roundRect(x, 6, w, 22, 5);
      g.fill();
      g.fillStyle = c.page;
      g.textBaseline = "middle";
      g.fillText(text, x + 8, 17.5);
    }
    if (i.brush) drawBand(g, i.brush, v, height);
  };

  const countIn = (range: Range): number => {
    let n = 0;
    for (let i = 0; scene && i < scene.length; i++) {
      if (scene.flags[i]! & FLAG_GAP || scene.x1[i]! < range.start || scene.x0[i]! > range.end) continue;
      n += scene.tiles[scene.tile[i]!]!.count[scene.row[i]!]!;
    }
    return n;
  };

  function draw(): void {
    frame = 0;
    if (!inputs || width <= 0 || height <= 0) return;
    refreshScene();
    const v = view();
    const marks = drawRuler(v);
    drawOverview();
    drawUnder(v, marks);
    if (scene) renderer.draw(scene, v);
    drawOverlay(v);
    drawnOnce = true;
    ready(complete);
  }

  void document.fonts?.ready.then(() => {
    forgetWidths();
    redraw();
  });

  return {
    renderer: renderer.kind,
    update(next) {
      const tracks = inputs && next.layout === inputs.layout ? blocks : blocksOf(next.layout);
      if (!inputs || next.card.id !== inputs.card.id || String(tracks) !== String(blocks)) {
        const profile = next.card.id;
        blocks = tracks;
        scene = null;
        sceneKey = "";
        cache = new TileCache(
          (key) => fetchTile(profile, tileRange(key), TILE_PX, tracks[key.block]!),
          (error) => {
            if (inputs?.card.id !== profile) return;
            failed(error);
            if (!error) redraw();
          },
        );
      }
      if (inputs?.theme !== next.theme) textColors.clear();
      inputs = next;
      redraw();
    },
    resize(w, h) {
      width = w;
      height = h;
      redraw();
    },
    scroll(top) {
      scrollTop = top;
      redraw();
    },
    retry() {
      cache?.retry();
      redraw();
    },
    itemAt(x, y) {
      if (!scene || !inputs) return null;
      const v = view();
      const at = hit(scene, v.start + x * v.nsPerPx, y + scrollTop, 3 * v.nsPerPx);
      return at < 0 ? null : itemOf(scene, at);
    },
    timeAt: (x) => {
      const v = view();
      return v.start + x * v.nsPerPx;
    },
    labels() {
      const box = canvases.overlay.getBoundingClientRect();
      return labels.map((l) => ({ ...l, x: l.x + box.left, y: l.y + box.top }));
    },
    countIn,
    visibleItems() {
      if (!scene || !inputs) return [];
      const v = view();
      const box = canvases.slices.getBoundingClientRect();
      const result: ReturnType<Timeline["visibleItems"]> = [];
      for (let n = 0; n < scene.length; n++) {
        const left = Math.max(0, (scene.x0[n]! - v.start) / v.nsPerPx);
        const right = Math.min(width, Math.max((scene.x1[n]! - v.start) / v.nsPerPx, left + 1));
        const y = scene.y[n]! - scrollTop;
        if (right <= 0 || left >= width || right <= left || y + scene.h[n]! <= 0 || y >= height) continue;
        const rect = { x: box.left + left, y: box.top + y, width: right - left, height: scene.h[n]! };
        result.push({ ...itemOf(scene, n), rect });
      }
      return result;
    },
    idle: () => complete && drawnOnce && frame === 0,
    dispose() {
      cancelAnimationFrame(frame);
      renderer.dispose();
    },
  };
}
