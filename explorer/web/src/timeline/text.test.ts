import { expect, test } from "vitest";
import { fitText } from "./text";

const ten = (text: string): number => text.length * 10;

test("what fits stays whole", () => expect(fitText("aten::mul", 90, ten)).toBe("aten::mul"));
test("what does not is shortened, never dropped while four characters fit", () => {
  expect(fitText("Torch-Compiled Region: 0/0", 160, ten)).toBe("Torch-Compiled…");
  expect(fitText("Torch-Compiled Region: 0/0", 40, ten)).toBe("Tor…");
  expect(fitText("Torch-Compiled Region: 0/0", 39, ten)).toBe("");
});
