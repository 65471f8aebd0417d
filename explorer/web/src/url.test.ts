import { expect, test } from "vitest";
import { formatUrl, parseUrl, type UrlState } from "./url";

const FULL: UrlState = {
  profile: "naive=1 & more",
  view: "compare",
  range: { start: -10, end: 2_400_000 },
  event: "-9007199254740993",
  base: "fused",
  scope: "ProfilerStep#3",
  marks: [
    { at: -5, name: "" },
    { at: 1_966_204, name: "third aten::mul & more" },
  ],
};

test("a link brings back what was seen, ids beyond 2^53 included", () => {
  expect(parseUrl(formatUrl(FULL))).toEqual(FULL);
});

test("the default view is a short link", () => {
  expect(
    formatUrl({ profile: "a", view: "timeline", range: null, event: null, base: "b", scope: null, marks: [] }),
  ).toBe("?profile=a");
});

test("a range is widened to whole nanoseconds, never narrowed", () => {
  const range = { start: 0.6, end: 9.2 };
  expect(parseUrl(formatUrl({ ...FULL, range })).range).toEqual({ start: 0, end: 10 });
});

test.each(["?t=5~1", "?t=a~b", "?event=drop%20table", "?view=nothing", "?mark=first", ""])(
  "nonsense in %s is ignored",
  (search) => {
    expect(parseUrl(search)).toEqual({
      profile: null,
      view: "timeline",
      range: null,
      event: null,
      base: null,
      scope: null,
      marks: [],
    });
  },
);
