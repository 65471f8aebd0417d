import { describe, expect, it } from "vitest";
import type { Roofline, RooflineRow } from "../types";
import { plot, ticks } from "./plot";

const row = (name: string, intensity: number | null, achieved: number | null): RooflineRow =>
  ({ name, intensity, achieved_flops_per_second: achieved }) as RooflineRow;

const roofline = (rows: RooflineRow[]): Roofline =>
  ({ roofs: { flops_per_second: 1e13, bytes_per_second: 1e11, ridge: 100 }, rows }) as Roofline;

describe("the roofline plot", () => {
  it("puts a point that reaches its roof on the roof's line", () => {
    const found = plot(roofline([row("memory", 1, 1e11), row("compute", 1000, 1e13)]), 300, 200);
    const [left, ridge, right] = found!.roof;
    const [memory, compute] = found!.points;
    const slope = (ridge![1] - left![1]) / (ridge![0] - left![0]);
    expect(memory!.y).toBeCloseTo(left![1] + slope * (memory!.x - left![0]), 6);
    expect(compute!.y).toBeCloseTo(right![1], 6);
    expect(ridge![1]).toBe(right![1]);
  });

  it("leaves out what has no FLOPs or no bytes, and is nothing when all lack them", () => {
    expect(plot(roofline([row("copy", 0, 0), row("mm", 10, 1e12)]), 300, 200)!.points.map((p) => p.row.name)).toEqual([
      "mm",
    ]);
    expect(plot(roofline([row("kernel", null, null)]), 300, 200)).toBeNull();
  });

  it("marks whole powers of ten", () => {
    expect(ticks({ from: -1, to: 2, size: 10 })).toEqual([-1, 0, 1, 2]);
  });
});
