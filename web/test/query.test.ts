import { expect, test } from "vitest";

import { exact } from "../src/lib/distribution";
import { lastNumber, seriesName } from "../src/lib/query";

// Lines of an imported panel were `{handler="/"}` where Grafana shows `/`.
test.each([
  ["{{handler}}", "/api"],
  ["{{ handler }} on {{host}}", "/api on a"],
  ["{{missing}}", 'up{handler="/api", host="a"}'],
  ["__auto", 'up{handler="/api", host="a"}'],
  ["", 'up{handler="/api", host="a"}'],
  ["requests", "requests"],
])("the template %s names a line %s", (template, expected) =>
  expect(seriesName({ __name__: "up", handler: "/api", host: "a" }, template)).toBe(expected),
);

test("a series without a last number sorts last", () => {
  const of = (value: number | null) => ({
    labels: {},
    points: [{ time: 1, value: value === null ? null : exact(value) }],
  });
  expect([of(null), of(-1), { labels: {}, points: [] }].map(lastNumber)).toEqual([
    -Infinity,
    -1,
    -Infinity,
  ]);
});
