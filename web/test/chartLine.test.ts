import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { lineStyle, MAX_STYLES, nearestPosition, readoutRows } from "../src/lib/chartLine";
import { HUES } from "../src/lib/colour";

test("72 lines differ in hue or dashes, and the first six in dashes alone", () => {
  const styles = Array.from({ length: MAX_STYLES }, (_, at) => lineStyle(at));
  expect(MAX_STYLES).toBe(72);
  expect(new Set(styles.map((style) => JSON.stringify(style))).size).toBe(72);
  expect(new Set(styles.slice(0, 6).map((style) => style.dash.join())).size).toBe(6);
  expect(new Set(styles.slice(0, HUES).map((style) => style.colour)).size).toBe(12);
});

/** Channels from 0 to 1. */
function channels(hex: string): number[] {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
}

test.each(["light", "dark"])("12 hues of the %s theme differ", (theme) => {
  const css = readFileSync(new URL("../src/app.css", import.meta.url), "utf8");
  const start = css.indexOf(theme === "dark" ? ':root[data-theme="dark"]' : ":root {");
  const block = css.slice(start, css.indexOf("}", start));
  const property = (name: string) => new RegExp(`--${name}: (#[0-9a-f]{6});`).exec(block)![1]!;
  const hues = Array.from({ length: HUES }, (_, at) => property(`line-${at + 1}`));
  hues.forEach((one, at) => {
    for (const other of hues.slice(at + 1)) {
      const [a, b] = [channels(one), channels(other)];
      const distance = Math.hypot(...a.map((part, channel) => part - b[channel]!));
      expect(distance, `${one} and ${other}`).toBeGreaterThan(0.14);
    }
  });
});

test("the readout has the greatest value first, its maximum beside it, and no gaps", () => {
  const line = { colour: "--line-1", dash: [] };
  const rows = readoutRows(
    [
      { ...line, name: "a", points: [1, 5], maxima: [9, null] },
      { ...line, name: "b", points: [3, null] },
      { ...line, name: "max a", points: [9, null], isUnlisted: true },
    ],
    0,
  );
  expect(rows.map(({ name, value, maximum }) => [name, value, maximum])).toEqual([
    ["b", 3, null],
    ["a", 1, 9],
  ]);
});

test.each([
  [[], 1, null],
  [[10, 20, 40], 0, 0],
  [[10, 20, 40], 29, 1],
  [[10, 20, 40], 31, 2],
  [[10, 20, 40], 99, 2],
])("of %j the nearest to %d is %j", (positions, x, expected) => {
  expect(nearestPosition(positions, x)).toBe(expected);
});

test("the readout has the value of a point that is drawn at the edge of the chart", () => {
  const line = { name: "left", colour: "--line-1", points: [-2, 0.5], actual: [-8.5, 0.5] };
  expect(readoutRows([line], 0)[0]!.value).toBe(-8.5);
  expect(readoutRows([line], 1)[0]!.value).toBe(0.5);
});
