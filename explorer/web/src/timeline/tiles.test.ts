import { expect, test } from "vitest";
import type { Tile } from "./tile";
import { keyText, levelFor, TILE_PX, TileCache, type TileKey, tileRange, tilesFor } from "./tiles";

const WHOLE = { start: 0, end: 10_000_000 };
const tile = (bytes: number): Tile => ({ bytes, length: 0 }) as Tile;
const key = (index: number): TileKey => ({ level: 3, index, block: 0 });
const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

test("a tile's pixel is never wider than the screen's", () => {
  for (const nsPerPx of [1, 1.5, 2, 1000, 1025, 7e6]) expect(2 ** levelFor(nsPerPx)).toBeLessThanOrEqual(nsPerPx);
  expect(levelFor(0.02)).toBe(0);
});

test("tiles cover the range without a hole and stay inside the profile", () => {
  const range = { start: 1_234_567, end: 3_456_789 };
  const keys = tilesFor(range, 1178, [0], WHOLE);
  expect(tileRange(keys[0]!).start).toBeLessThanOrEqual(range.start);
  expect(tileRange(keys.at(-1)!).end).toBeGreaterThanOrEqual(range.end);
  for (let i = 1; i < keys.length; i++) expect(tileRange(keys[i]!).start).toBe(tileRange(keys[i - 1]!).end);
  expect(keys.length).toBeLessThanOrEqual(Math.ceil((1178 * 2) / TILE_PX) + 1);
  const outside = tilesFor({ start: -5e6, end: 5e7 }, 1178, [0], WHOLE);
  expect(outside.every((k) => tileRange(k).end > 0 && tileRange(k).start < WHOLE.end)).toBe(true);
});

test("each block of tracks has its tiles", () => {
  expect(new Set(tilesFor({ start: 0, end: 1000 }, 1000, [0, 2], WHOLE).map((k) => k.block))).toEqual(new Set([0, 2]));
});

test("a tile is fetched once, however often it is wanted", async () => {
  const asked: string[] = [];
  let changes = 0;
  const cache = new TileCache(
    async (k) => {
      asked.push(keyText(k));
      return tile(10);
    },
    () => changes++,
  );
  expect(cache.want([key(0), key(1)])).toBe(false);
  expect(cache.want([key(0), key(1)])).toBe(false);
  await settled();
  expect(cache.want([key(0), key(1)])).toBe(true);
  expect(asked).toEqual(["3/0/0", "3/1/0"]);
  expect(changes).toBe(2);
});

test("the least recently used tile is forgotten first", async () => {
  const cache = new TileCache(
    async () => tile(40),
    () => {},
    100,
  );
  cache.want([key(0), key(1)]);
  await settled();
  expect(cache.get(key(0))).toBeDefined(); // used again: now 1 is the oldest
  cache.want([key(2)]);
  await settled();
  expect(cache.get(key(1))).toBeUndefined();
  expect(cache.get(key(0))).toBeDefined();
  expect(cache.get(key(2))).toBeDefined();
});

test("tiles in view survive a limit that is smaller than they are", async () => {
  const cache = new TileCache(
    async () => tile(40),
    () => {},
    10,
  );
  const view = [key(0), key(1), key(2)];
  cache.want(view);
  await settled();
  expect(cache.want(view)).toBe(true);
});

test("a failure is told once and the tile is asked for again when told so, or with another view", async () => {
  let attempts = 0;
  const told: unknown[] = [];
  const cache = new TileCache(
    async () => {
      attempts += 1;
      if (attempts <= 2) throw new Error("gone");
      return tile(1);
    },
    (error) => told.push(error),
  );
  cache.want([key(0)]);
  await settled();
  expect(String(told[0])).toContain("gone");
  cache.want([key(0)]); // drawing the same view again does not hammer the server
  await settled();
  expect(attempts).toBe(1);
  cache.retry();
  cache.want([key(0)]);
  await settled();
  expect(attempts).toBe(2);
  cache.want([key(0), key(1)]);
  await settled();
  expect(cache.want([key(0), key(1)])).toBe(true);
});
