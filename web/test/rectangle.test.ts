import { expect, test } from "vitest";

import { parseRectangle, writeRectangle } from "../src/lib/rectangle";

test("a shared link keeps the rectangle of the breakdown", () => {
  const rectangle = { from: 1_794_906_565_000, to: 1_794_906_600_000, low: 0.25, high: 1.5 };
  expect(parseRectangle(writeRectangle(rectangle))).toEqual(rectangle);
  const negative = { ...rectangle, low: -3e-9, high: 1e12 };
  expect(parseRectangle(writeRectangle(negative))).toEqual(negative);
});

test.each(["", "1,2,3", "1,2,3,", "2,1,3,4", "1,2,4,3", "a,b,c,d", "1,2,3,NaN", "1,Infinity,3,4"])(
  "%j is no rectangle",
  (text) => expect(parseRectangle(text)).toBeNull(),
);

test("a rectangle without an upper limit is written and read", () => {
  const rectangle = { from: 1, to: 2, low: 0.25, high: Infinity };
  expect(parseRectangle(writeRectangle(rectangle))).toEqual(rectangle);
});
