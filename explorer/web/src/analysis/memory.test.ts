import { describe, expect, it } from "vitest";
import type { CurveRow } from "../types";
import { curves } from "./memory";

const row = (start_ts: number, peak_bytes: number, last_bytes: number, series = "allocated"): CurveRow => ({
  rank: -1,
  place: "device 0",
  series,
  start_ts,
  peak_bytes,
  last_bytes,
});

describe("the memory curve", () => {
  it("draws each piece's peak, then keeps its last value until the next", () => {
    const [curve] = curves([row(0, 50, 25), row(50, 100, 0)], 100, 200, 100);
    expect(curve?.path).toBe("M0.0 50.0V75.0H100.0L100.0 0.0V100.0H200.0");
    expect(curve?.label).toBe("device 0, allocated");
  });

  it("shows the largest first, all at one scale", () => {
    const both = curves([row(0, 10, 10), row(0, 40, 40, "reserved")], 100, 100, 100);
    expect(both.map((c) => [c.label, c.path.split("V")[0]])).toEqual([
      ["device 0, reserved", "M0.0 0.0"],
      ["device 0, allocated", "M0.0 75.0"],
    ]);
  });
});
