import { expect, test } from "vitest";
import { bytes, duration, markdownTable, nanoseconds, percent, pretty, si, signedMicroseconds } from "./format";

test.each([
  [0, "0 ns"],
  [34, "34 ns"],
  [385_000, "385 µs"],
  [388_400, "388 µs"],
  [2_355_000, "2.36 ms"],
  [3_000, "3.00 µs"],
  [999_700, "1.00 ms"], // never "1000 µs"
  [9_996, "10.0 µs"], // three digits after rounding up too
  [12_000_000_000, "12.0 s"],
  [-65_000, "-65.0 µs"],
])("%i ns reads %s", (ns, text) => expect(duration(ns)).toBe(text));

test("the estimate's mark, and a missing value", () => {
  expect(duration(4_000, { estimated: true })).toBe("≈ 4.00 µs");
  expect(duration(null)).toBe("–");
});

test("details keep every nanosecond", () => {
  expect(nanoseconds(1_966_204)).toBe("1,966,204 ns");
  expect(signedMicroseconds(-1_925_004)).toBe("−1,925.004 µs");
  expect(signedMicroseconds(7)).toBe("+0.007 µs");
  expect(signedMicroseconds(0)).toBe("0.000 µs");
});

test("bytes, shares, rates", () => {
  expect(bytes(4096)).toBe("4.00 KiB");
  expect(bytes(12 * 1024)).toBe("12.0 KiB"); // as the server writes it
  expect(bytes(37_376)).toBe("36.5 KiB");
  expect(bytes(12)).toBe("12 B");
  expect(percent(0.4949)).toBe("49.5 %");
  expect(percent(null)).toBe("–");
  expect(si(78.6e12)).toBe("78.6 T");
});

test("the server's us becomes µs, words stay", () => {
  expect(pretty("13 us idle: use us, 5 × 385 us.")).toBe("13 µs idle: use us, 5 × 385 µs.");
});

test("cells of a Markdown table cannot break it", () => {
  expect(markdownTable(["a"], [["x|y"]])).toBe("| a |\n| --- |\n| x\\|y |");
});
