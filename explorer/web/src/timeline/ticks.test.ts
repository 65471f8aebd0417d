import { expect, test } from "vitest";
import { niceStep, ticks } from "./ticks";

test.each([
  [1, 1],
  [3, 5],
  [180_000, 200_000],
  [200_000, 200_000],
  [200_001, 500_000],
  [0.2, 1],
])("a step of at least %d is %d", (ns, step) => expect(niceStep(ns)).toBe(step));

test("the walk-through's span has ticks every 200 µs in one unit", () => {
  const labels = ticks(0, 2_400_000, 0, 1178).map((t) => t.label);
  expect(labels.slice(0, 3)).toEqual(["0 µs", "200 µs", "400 µs"]);
  expect(labels.at(-1)).toBe("2,400 µs");
});

test("labels count from the zero they are given", () => {
  const marks = ticks(5_000_000, 6_000_000, 5_000_000, 1000);
  expect(marks[0]).toEqual({ at: 5_000_000, label: "0 µs" });
  expect(marks.map((t) => t.label)).toContain("500 µs");
});

test("deep inside a long profile neighbouring labels differ, in one unit and with equal decimals", () => {
  const labels = ticks(1_966_200, 1_966_300, 0, 1000).map((t) => t.label);
  expect(new Set(labels).size).toBe(labels.length);
  expect(new Set(labels.map((l) => l.split(" ")[1])).size).toBe(1);
  expect(new Set(labels.map((l) => l.split(" ")[0]!.split(".")[1]?.length)).size).toBe(1);
});

test("ticks keep their distance at any zoom", () => {
  for (const span of [20, 777, 31_415, 2.4e6, 9.9e9]) {
    const marks = ticks(123, 123 + span, 0, 1000);
    for (let i = 1; i < marks.length; i++)
      expect(((marks[i]!.at - marks[i - 1]!.at) / span) * 1000).toBeGreaterThanOrEqual(83.9);
  }
});

test("an empty range has no ticks", () => expect(ticks(5, 5, 0, 1000)).toEqual([]));
