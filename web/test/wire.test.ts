import { expect, test } from "vitest";

import { Distribution, exact } from "../src/lib/distribution";
import {
  countBounds,
  latencySelector,
  sortStatements,
  statementKey,
  toStatements,
} from "../src/lib/wire";

const distribution = (...values: number[]) =>
  new Distribution(
    values.map((value) => ({ lower: value, upper: value, count: 1 })),
    exact(values.reduce((a, b) => a + b, 0)),
  );
const series = (labels: Record<string, string>, ...values: number[]) => ({
  labels,
  points: [{ time: 0, value: distribution(...values) }],
});

const RESULT = {
  series: [
    series({ verb: "GET", statement: "/a", outcome: "ok" }, 1, 2, 3),
    series({ verb: "GET", statement: "/a", outcome: "error" }, 4),
    series({ verb: "GET", statement: "/b", outcome: "ok" }, 9),
    series({ verb: "Startup", outcome: "ok" }, 5),
    series({ statement: "other", overflow: "true", outcome: "ok" }, 20),
    series({ verb: "GET", statement: "other", outcome: "ok" }, 7),
  ],
};

test("outcomes of a statement are one row, and the other statements are apart", () => {
  const found = toStatements(RESULT);
  const rows = found.map((one) => [statementKey(one), one.latency.count, one.errors]);
  expect(rows).toEqual([
    ["GET /a", 4, 1],
    ["GET /b", 1, 0],
    ["Startup", 1, 0],
    ["other", 1, 0],
    ["GET other", 1, 0],
  ]);
});

test("statements are ordered by time, or by requests above the threshold", () => {
  const keys = (order: "time" | "above", threshold: number | null) =>
    sortStatements(toStatements(RESULT), order, threshold).map(statementKey);
  expect(keys("time", 2.5)).toEqual(["other", "GET /a", "GET /b", "GET other", "Startup"]);
  expect(keys("above", 2.5)).toEqual(["GET /a", "other", "GET /b", "GET other", "Startup"]);
  expect(keys("above", null)).toEqual(keys("time", null));
});

test("a selector has the labels of the statement, and quotes them", () => {
  const [statement, , , other] = toStatements(RESULT);
  expect(latencySelector('a"b')).toBe('wire_latency{service="a\\"b"}');
  expect(latencySelector("s", statement)).toBe(
    'wire_latency{service="s", verb="GET", statement="/a"}',
  );
  expect(latencySelector("s", other)).toBe('wire_latency{service="s", overflow="true"}');
});

test("a count has the bounds with and without what was not measured", () => {
  expect(countBounds(5, 0)).toEqual({ lower: 5, estimate: 5, upper: 5 });
  expect(countBounds(5, 2)).toEqual({ lower: 5, estimate: 5, upper: 7 });
});
