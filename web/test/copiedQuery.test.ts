import { expect, test } from "vitest";

import { heatmapQuery, promqlDuration } from "../src/lib/api";

const HOUR = { selector: "latency", start: 0, end: 3_600_000, step: 120_000 };

/** The copies had no threshold, and the range was `[120000ms]`. */
test("a copied query gives the number of values that is shown", () => {
  const above = heatmapQuery(HOUR, { parameter: "1.5s", promql: "1500ms" });
  expect(above.promql).toBe(
    "histogram_count_above(1500ms, sum(exact_increase(latency[1h] @ 3600)))",
  );
  expect(above.parameters).toMatchObject({ selector: "latency", step: "120000ms", above: "1.5s" });
  const all = heatmapQuery(HOUR);
  expect(all.promql).toBe("sum(exact_increase(latency[2m]))");
  expect(all.parameters).not.toHaveProperty("above");
  expect(heatmapQuery({ ...HOUR, selector: "and(host:a)" }).promql).toBeNull();
});

test("durations in PromQL have the largest unit that gives a whole number", () => {
  const shown = [172_800_000, 5_400_000, 90_000, 1_500, 0].map(promqlDuration);
  expect(shown).toEqual(["2d", "90m", "90s", "1500ms", "0ms"]);
});
