import { expect, test } from "vitest";

import { placeLabels } from "../src/lib/markLabels";

const CHART = [0, 300] as const;

// The chart of an incident had "SloBud…", and two red lines without a name.
test("texts of marks near each other are whole, each in a row of its own", () => {
  const labels = [100, 105, 110].map((at) => ({ at, width: 120 }));
  expect(placeLabels(labels, CHART, 4)).toEqual([
    { x: 104, row: 0 },
    { x: 109, row: 1 },
    { x: 114, row: 2 },
  ]);
});

test("a text that ends before the next mark leaves the row to it", () => {
  const labels = [10, 100].map((at) => ({ at, width: 80 }));
  expect(placeLabels(labels, CHART, 4).map((one) => one?.row)).toEqual([0, 0]);
});

test("a text at the end of the chart is left of its line, or as far right as there is room", () => {
  expect(placeLabels([{ at: 290, width: 200 }], CHART, 1)).toEqual([{ x: 86, row: 0 }]);
  expect(placeLabels([{ at: 150, width: 250 }], CHART, 1)).toEqual([{ x: 50, row: 0 }]);
});

test("a text without room is left out, not cut off", () => {
  expect(placeLabels([{ at: 10, width: 301 }], CHART, 1)).toEqual([null]);
  const labels = [10, 20].map((at) => ({ at, width: 100 }));
  expect(placeLabels(labels, CHART, 1)).toEqual([{ x: 14, row: 0 }, null]);
});
