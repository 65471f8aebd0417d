import { describe, expect, it } from "vitest";
import type { SplitRow } from "../types";
import { bars, totals } from "./split";

const row = (step: number, category: string, time_ns: number, rank = -1): SplitRow => ({
  step,
  rank,
  category,
  time_ns,
  span_ns: 100,
  share: time_ns / 100,
});

describe("the step split", () => {
  it("stacks what the device did before why it idled, and fills the bar", () => {
    const [bar] = bars([row(3, "host_late", 60), row(3, "compute", 30), row(3, "memory_copy", 10)]);
    expect(bar?.parts.map((p) => [p.name, p.from, p.to])).toEqual([
      ["compute", 0, 0.3],
      ["memory_copy", 0.3, 0.4],
      ["host_late", 0.4, 1],
    ]);
    expect(bar?.label).toBe("step 3");
  });

  it("has a bar per rank where there are several, and sums over all", () => {
    const rows = [row(1, "compute", 40, 0), row(1, "host_late", 60, 0), row(1, "compute", 100, 1)];
    expect(bars(rows).map((b) => b.label)).toEqual(["step 1 · rank 0", "step 1 · rank 1"]);
    expect(totals(rows).map((t) => [t.text, t.share])).toEqual([
      ["computing", 0.7],
      ["host late", 0.3],
    ]);
  });
});
