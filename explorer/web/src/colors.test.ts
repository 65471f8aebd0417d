import { describe, expect, test } from "vitest";
import {
  ColorBook,
  contrast,
  darker,
  HUE_COUNT,
  hash,
  mix,
  rgb,
  slotColor,
  THEMES,
  type ThemeName,
  textOn,
} from "./colors";
import style from "./style.css?raw";

describe.each(["light", "dark"] as ThemeName[])("the %s theme", (theme) => {
  const lane = rgb(THEMES[theme].lane);
  const slots = Array.from({ length: HUE_COUNT * 3 }, (_, i) => slotColor(i, theme));
  test("every fill has 3:1 against its lane, or its outline has", () => {
    for (const fill of slots.slice(0, HUE_COUNT)) expect(contrast(fill, lane)).toBeGreaterThanOrEqual(3);
    for (const fill of slots)
      expect(Math.max(contrast(fill, lane), contrast(darker(fill), lane))).toBeGreaterThanOrEqual(3);
  });
  test("text on a fill has 4.5:1", () => {
    for (const fill of slots) expect(contrast(textOn(fill), fill)).toBeGreaterThanOrEqual(4.5);
  });
  test("text on a dimmed fill has 4.5:1", () => {
    for (const fill of slots) {
      const dimmed = mix(lane, fill, 0.42);
      expect(contrast(rgb(THEMES[theme].text), dimmed)).toBeGreaterThanOrEqual(4.5);
    }
  });
  test("no two of the first eight are the same", () => {
    expect(new Set(slots.slice(0, HUE_COUNT).map(String)).size).toBe(HUE_COUNT);
  });
});

describe.each(["light", "dark"] as ThemeName[])("text of the page in the %s theme", (theme) => {
  const block = theme === "light" ? /:root \{([^}]*)\}/ : /:root\[data-theme="dark"\] \{([^}]*)\}/;
  const value = (name: string) => rgb(new RegExp(`--${name}: (#\\w{6});`).exec(block.exec(style)![1]!)![1]!);
  test.each([
    ...["page", "bar", "panel", "card", "lane", "row"].flatMap((ground) => [
      ["text", ground],
      ["dim", ground],
    ]),
    ...["page", "panel", "card"].flatMap((ground) => [
      ["accent", ground],
      ["better", ground],
      ["worse", ground],
    ]),
    ["page", "accent"],
    ["chip-text", "chip"],
    ["amber-text", "amber"],
    ["error-text", "error"],
    ["accent", "lane"],
    ["better", "row"],
    ["worse", "row"],
  ])("%s on %s has 4.5:1", (text, ground) => {
    expect(contrast(value(text!), value(ground!))).toBeGreaterThanOrEqual(4.5);
  });
  test.each(["page", "lane", "text", "dim", "accent"] as const)("the canvases have its %s", (name) => {
    expect(rgb(THEMES[theme][name])).toEqual(value(name));
  });
});

test("a name keeps its colour whatever comes later, and its overloads share it", () => {
  const book = new ColorBook();
  const before = book.color("aten::mul", "light");
  for (let i = 0; i < 100; i++) book.slot(`kernel_${i}`);
  expect(book.color("aten::mul", "light")).toEqual(before);
  expect(book.color("aten::mul.Tensor", "light")).toEqual(before);
});

test("the first eight names get eight colours even when their hashes collide", () => {
  const names: string[] = [];
  for (let i = 0; names.length < HUE_COUNT; i++) if (hash(`n${i}`) % HUE_COUNT === 3) names.push(`n${i}`);
  const book = new ColorBook();
  expect(new Set(names.map((n) => book.slot(n))).size).toBe(HUE_COUNT);
});

test("the same names in the same order have the same colours in another visit", () => {
  const names = ["aten::mul", "gemm", "softmax", "aten::_fused_rms_norm"];
  const [a, b] = [new ColorBook(), new ColorBook()];
  expect(names.map((n) => a.slot(n))).toEqual(names.map((n) => b.slot(n)));
});

test("work no operator claims, Python frames, steps and waits are grey", () => {
  const names = [
    null,
    "torch/nn/modules/module.py(1743): _call_impl",
    "ProfilerStep#3",
    "nrt_synchronize",
    "cudaDeviceSynchronize",
  ];
  for (const name of names) expect(new ColorBook().color(name, "light")).toEqual(rgb(THEMES.light.neutral));
});
