import { expect, test } from "vitest";

import type { HeatmapColumn } from "../src/lib/api";
import { Distribution } from "../src/lib/distribution";
import { spreadPositions, Overlay } from "../src/lib/overlay";
import { Scale } from "../src/lib/scale";

/** Records filled rectangles. */
class Canvas {
  fillStyle = "";
  font = "";
  textAlign = "";
  textBaseline = "";
  readonly filled: { colour: string; x: number; y: number; width: number; height: number }[] = [];
  readonly written: { text: string; y: number }[] = [];
  fillRect(x: number, y: number, width: number, height: number): void {
    this.filled.push({ colour: this.fillStyle, x, y, width, height });
  }
  fillText(text: string, _: number, y: number): void {
    this.written.push({ text, y });
  }
}

const BOX = { left: 10, top: 20, width: 400, height: 100 };

function column(at: number, ...values: number[]): HeatmapColumn {
  const cells = values.map((value) => ({ lower: value, upper: value, count: 1 }));
  return { start: at, end: at + 1, distribution: new Distribution(cells), gaps: [] };
}

function drawn(columns: HeatmapColumn[], names: string[]): Canvas {
  const canvas = new Canvas();
  const overlay = new Overlay();
  overlay.choose(names);
  overlay.draw(
    canvas as unknown as CanvasRenderingContext2D,
    columns,
    new Scale(1, 1000, 1),
    BOX,
    1,
    (name) => name,
  );
  return canvas;
}

test("the maximum is always drawn, as steps with vertical edges", () => {
  const { filled, written } = drawn(
    [column(0, 10), column(1, 10), column(2, 100), column(3, 100)],
    [],
  );
  expect(written.map((one) => one.text)).toEqual(["max"]);
  // The same height is one rectangle.
  const flat = filled.filter((one) => one.height === 1);
  expect(flat.map(({ x, width }) => [x, width])).toEqual([
    [10, 200],
    [210, 200],
  ]);
  const [low, high] = flat.map((one) => one.y);
  expect(high).toBeLessThan(low!);
  const rise = filled.filter((one) => one.height > 1);
  expect(rise).toEqual([
    { colour: "--line-max", x: 210, y: high, width: 1, height: low! - high! + 1 },
  ]);
});

test("a column without values is a hole: nothing is drawn across it", () => {
  const { filled } = drawn([column(0, 10), column(1), column(2, 100), column(3)], []);
  expect(filled.map(({ x, width, height }) => [x, width, height])).toEqual([
    [10, 100, 1],
    [210, 100, 1],
  ]);
});

test("lines have names even when the last column is empty", () => {
  const { written } = drawn([column(0, 10), column(1, 1000), column(2)], ["p50"]);
  expect(written.map((one) => one.text).sort()).toEqual(["max", "p50"]);
  // At the top, where the lines end.
  for (const { y } of written) expect(y).toBeLessThan(BOX.top + 20);
});

test("names of lines that end together stand apart", () => {
  const { written } = drawn([column(0, 10, 10, 10)], ["p50", "p99"]);
  expect(written.map((one) => one.text).sort()).toEqual(["max", "p50", "p99"]);
  const heights = written.map((one) => one.y);
  for (let at = 1; at < heights.length; at++)
    expect(heights[at]! - heights[at - 1]!).toBeGreaterThanOrEqual(13);
});

test.each([
  [[], []],
  [[50], [50]],
  [
    [50, 52],
    [50, 63],
  ],
  [
    [95, 99],
    [87, 100],
  ],
  [
    [-5, 200],
    [0, 100],
  ],
])("places %j are moved apart to %j", (places, moved) => {
  expect(spreadPositions(places, 13, 0, 100)).toEqual(moved);
});
