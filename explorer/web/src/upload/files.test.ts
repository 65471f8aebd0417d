import { describe, expect, it } from "vitest";
import { type Chosen, selectFiles } from "./files";

const chosen = (...paths: string[]): Chosen[] => paths.map((path) => ({ path, file: new File([], path) }));
const ENDINGS = [".json", ".gz", ".pb"];
const paths = (files: Chosen[]): string[] => files.map((one) => one.path);

describe("selectFiles", () => {
  it("sends one file whatever its name, under its name without endings", () => {
    const found = selectFiles(chosen("run 7.pt.trace.json.gz"), ENDINGS);
    expect([found.name, paths(found.files), found.left]).toEqual(["run 7", ["run 7.pt.trace.json.gz"], 0]);
    expect(selectFiles(chosen("notes"), ENDINGS).files).toHaveLength(1);
  });

  it("names a folder's upload after it and keeps the places below it", () => {
    const found = selectFiles(chosen("job/rank0/trace.json", "job/rank1/trace.json"), ENDINGS);
    expect([found.name, paths(found.files)]).toEqual(["job", ["rank0/trace.json", "rank1/trace.json"]]);
  });

  it("leaves out what can be no part of a profile and says how much", () => {
    const found = selectFiles(chosen("job/a.json", "job/model.py", "job/.git/x.json", "job/__MACOSX/a.json"), ENDINGS);
    expect([paths(found.files), found.left]).toEqual([["a.json"], 3]);
  });

  it("keeps files that were dropped together without a folder", () => {
    const found = selectFiles(chosen("rank0.json", "rank1.json"), ENDINGS);
    expect([found.name, paths(found.files)]).toEqual(["rank0", ["rank0.json", "rank1.json"]]);
  });
});
