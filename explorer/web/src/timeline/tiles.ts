/** Which tiles a view needs, and a cache of the ones fetched, bounded by bytes. */

import type { Range } from "../types";
import type { Tile } from "./tile";

export const TILE_PX = 1024;

export interface TileKey {
  /** nanoseconds per pixel are 2^level */
  level: number;
  index: number;
  /** block of tracks, so that a long list of tracks is fetched as it scrolls into view */
  block: number;
}

export const keyText = (k: TileKey): string => `${k.level}/${k.index}/${k.block}`;

export function tileRange(key: TileKey): Range {
  const span = TILE_PX * 2 ** key.level;
  return { start: key.index * span, end: (key.index + 1) * span };
}

/** Level whose pixels are at most as wide as the screen's, so that what is merged is never wider than a pixel. */
export function levelFor(nsPerPx: number): number {
  return Math.max(0, Math.floor(Math.log2(Math.max(1, nsPerPx))));
}

/** Tiles that cover the range (clipped to `limit`) for each block of tracks. */
export function tilesFor(range: Range, widthPx: number, blocks: number[], limit: Range): TileKey[] {
  const level = levelFor((range.end - range.start) / Math.max(1, widthPx));
  const span = TILE_PX * 2 ** level;
  const first = Math.floor(Math.max(range.start, limit.start) / span);
  const last = Math.floor(Math.max(Math.min(range.end, limit.end) - 1, Math.max(range.start, limit.start)) / span);
  const keys: TileKey[] = [];
  for (const block of blocks) for (let index = first; index <= last; index++) keys.push({ level, index, block });
  return keys;
}

/**
 * Least recently used cache of tiles. `want` starts what is missing, tells nobody twice, and forgets the oldest tiles
 * beyond the limit. A failed tile is reported once and asked for again when the view is another one, or on `retry`.
 */
export class TileCache {
  private readonly tiles = new Map<string, Tile>();
  private readonly loading = new Set<string>();
  private readonly failed = new Set<string>();
  private needed: ReadonlySet<string> = new Set();
  private bytes = 0;

  constructor(
    private readonly fetchTile: (key: TileKey) => Promise<Tile>,
    private readonly changed: (error: unknown) => void,
    private readonly limitBytes = 64 * 1024 * 1024,
  ) {}

  get(key: TileKey): Tile | undefined {
    const text = keyText(key);
    const tile = this.tiles.get(text);
    if (tile) {
      this.tiles.delete(text); // moves it to the young end
      this.tiles.set(text, tile);
    }
    return tile;
  }

  /** Asks for the tiles in view, which are kept whatever the limit; returns whether all are there already. */
  want(keys: TileKey[]): boolean {
    const needed = new Set(keys.map(keyText));
    if (needed.size !== this.needed.size || keys.some((key) => !this.needed.has(keyText(key)))) this.retry();
    this.needed = needed;
    return this.prefetch(keys);
  }

  retry(): void {
    this.failed.clear();
  }

  /** Asks for tiles that may be needed next. */
  prefetch(keys: TileKey[]): boolean {
    let complete = true;
    for (const key of keys) {
      const text = keyText(key);
      if (this.tiles.has(text)) continue;
      complete = false;
      if (this.loading.has(text) || this.failed.has(text)) continue;
      this.loading.add(text);
      this.fetchTile(key).then(
        (tile) => {
          this.loading.delete(text);
          this.tiles.set(text, tile);
          this.bytes += tile.bytes;
          this.forget();
          this.changed(null);
        },
        (error: unknown) => {
          this.loading.delete(text);
          this.failed.add(text);
          this.changed(error);
        },
      );
    }
    return complete;
  }

  private forget(): void {
    for (const [text, tile] of this.tiles) {
      if (this.bytes <= this.limitBytes) break;
      if (this.needed.has(text)) continue;
      this.tiles.delete(text);
      this.bytes -= tile.bytes;
    }
  }
}
