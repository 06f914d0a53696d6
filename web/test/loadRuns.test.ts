import { expect, test } from "vitest";

import { Distribution, exact } from "../src/lib/distribution";
import {
  comparisonWarnings,
  describeCompleted,
  loadSelector,
  runRange,
  toLoadRuns,
} from "../src/lib/loadRuns";
import type { QueryResult } from "../src/lib/query";

const result = (
  rows: [Record<string, string>, number | Distribution][],
  unit = "",
): QueryResult => ({
  unit,
  series: rows.map(([labels, value]) => ({
    labels,
    points: [{ time: 0, value: typeof value === "number" ? exact(value) : value }],
  })),
  maxima: [],
  warnings: [],
  gaps: [],
});

const labels = (run: string) => ({ run, target: "http://a/", protocol: "http" });
const key = (run: string) => JSON.stringify([run, "http://a/", "http"]);
const DISTRIBUTION = new Distribution([{ lower: 1, upper: 2, count: 7 }]);

function runs(validities: Record<string, string>, to = 1_000_000) {
  return toLoadRuns(
    {
      found: result([
        [{ ...labels("a"), count: "scheduled" }, 10],
        [{ ...labels("a"), count: "completed" }, 9],
        [{ ...labels("b"), count: "scheduled" }, 20],
      ]),
      durations: result([[{ ...labels("a"), time: "response" }, DISTRIBUTION]], "ns"),
      extents: result([
        [{ ...labels("a"), end: "first" }, 101],
        [{ ...labels("a"), end: "last" }, 160],
        [{ ...labels("b"), end: "first" }, 501],
        [{ ...labels("b"), end: "last" }, 990],
      ]),
      validities: new Map(Object.entries(validities).map(([run, text]) => [key(run), text])),
      schedules: new Map([[key("a"), "100/s for 60 s"]]),
    },
    [0, to],
  );
}

// The p99 of a run was 458M.
test("times of a run without queue times have a unit", () => {
  const durations = result([[{ ...labels("a"), time: "response" }, DISTRIBUTION]]);
  const none = result([]);
  const [validities, schedules] = [new Map<string, string>(), new Map<string, string>()];
  const parts = { found: none, durations, extents: none, validities, schedules };
  expect(toLoadRuns(parts, [0, 1_000_000])[0]!.unit).toBe("ns");
});

test("runs have their numbers and times, the latest first", () => {
  const [b, a] = runs({ a: "valid" });
  expect([b!.run, a!.run]).toEqual(["b", "a"]);
  expect(a).toMatchObject({ start: 100_000, end: 160_000, isCut: false, unit: "ns" });
  expect(a!.schedule).toBe("100/s for 60 s");
  expect(a!.counts).toMatchObject({ scheduled: 10, completed: 9, failed: 0 });
  expect(a!.times.response).toBe(DISTRIBUTION);
  expect(a!.times.queue.isEmpty).toBe(true);
  expect(describeCompleted(a!)).toBe("9 of 10 (90 %)");
  expect(loadSelector(a!, "service")).toBe(
    'load_service_time{run="a", target="http://a/", protocol="http"}',
  );
  expect(runRange(a!)).toEqual({ from: "1970-01-01T00:01:39Z", to: "1970-01-01T00:02:41Z" });
});

test("a run without a word on its validity is unknown, never valid", () => {
  const [b, a] = runs({ a: "invalid: the generator stalled once; lag" });
  expect(a).toMatchObject({ validity: "invalid", reason: "the generator stalled once; lag" });
  expect(b!.validity).toBe("unknown");
  // Its last sample is 10 s old.
  expect(b!.reason).toMatch(/may be in progress/);
  expect(runs({}, 2_000_000)[0]!.reason).toMatch(/aborted/);
  expect(runs({ b: "something else" })[0]!.validity).toBe("unknown");
});

test("what speaks against a comparison is said", () => {
  const [b, a] = runs({ a: "valid" });
  expect(comparisonWarnings(a!, a!)).toEqual([]);
  expect(comparisonWarnings(a!, b!)).toEqual(["B is of unknown validity", "the schedules differ"]);
  expect(comparisonWarnings({ ...a!, isCut: true }, { ...a!, target: "x" })).toEqual([
    "A began before the range",
    "the targets differ",
  ]);
});
