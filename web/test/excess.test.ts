import { expect, test } from "vitest";

import { exact } from "../src/lib/distribution";
import { excessState } from "../src/lib/excess";

// The edges are those of the server's test: 60 and 61 of 3,600.
test.each([
  [38, 3_600, "usual"],
  [60, 3_600, "usual"],
  [61, 3_600, "affected"],
  [1, 1, "usual"],
  [3, 3, "affected"],
  [0, 0, "usual"],
] as const)("%d of %d above the threshold are %s", (above, count, expected) =>
  expect(excessState(exact(above), count)).toBe(expected),
);

test("a bucket that may hold all slow requests is uncertain", () => {
  expect(excessState({ lower: 0, estimate: 400, upper: 700 }, 3_600)).toBe("uncertain");
});
