import { expect, test } from "vitest";
import { clampRange, fitTo, MINIMUM_SPAN_NS, recentre, zoomRange } from "./range";

test("zooming keeps the time under the pointer in place", () => {
  const zoomed = zoomRange({ start: 0, end: 1000 }, 0.5, 250);
  expect(zoomed).toEqual({ start: 125, end: 625 });
  expect((250 - zoomed.start) / (zoomed.end - zoomed.start)).toBe(0.25);
});

test("recentring keeps the zoom", () => {
  expect(recentre({ start: 0, end: 100 }, { start: 480, end: 520 })).toEqual({ start: 450, end: 550 });
});

test("a slice wider than the view is shown from its start", () => {
  expect(recentre({ start: 0, end: 100 }, { start: 1000, end: 9000 })).toEqual({ start: 980, end: 1080 });
});

test("fitting leaves the slice most of the view", () => {
  const view = fitTo({ start: 1000, end: 9000 });
  expect(view.start).toBeLessThan(1000);
  expect(8000 / (view.end - view.start)).toBeCloseTo(0.8, 2);
});

test("one cannot get lost outside the profile or below a few nanoseconds", () => {
  const bounds = { start: 0, end: 1000 };
  const far = clampRange({ start: 90_000, end: 90_100 }, bounds);
  expect(far.end).toBeLessThanOrEqual(1050);
  expect(far.end - far.start).toBeCloseTo(100);
  const deep = clampRange({ start: 500, end: 500 }, bounds);
  expect(deep.end - deep.start).toBe(MINIMUM_SPAN_NS);
  const wide = clampRange({ start: -1e9, end: 1e9 }, bounds);
  expect(wide).toEqual({ start: -50, end: 1050 });
});
