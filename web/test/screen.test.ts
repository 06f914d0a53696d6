import { expect, test } from "vitest";

import { fitText } from "../src/lib/screen";

test.each([
  ["deployed payment", 20, "deployed payment"],
  ["deployed payment", 10, "deployed…"],
  ["deployed payment", 6, "deplo…"],
  ["deployed payment", 3, ""],
  ["up", 2, "up"],
])("of the annotation %s in %d letters, %s is drawn", (text, width, expected) =>
  expect(fitText(text, width, (one) => [...one].length)).toBe(expected),
);
