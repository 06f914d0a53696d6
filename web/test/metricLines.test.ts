import { expect, test } from "vitest";

import { filterMetrics, listMetrics, nameParts } from "../src/lib/metricLines";

// `doctor_recorded` was listed twice with the same text, and each metric of topdeck in ns and s.
test("a metric has one line, and one of topdeck is not listed again in seconds", () => {
  const one = (name: string, series: number, unit: string, help = "") => ({
    name,
    series,
    unit,
    help,
  });
  const lines = listMetrics([
    one("doctor_recorded", 20, "ns"),
    one("doctor_recorded", 20, "ns"),
    one("latency", 1, "ms", "Time of a request"),
    one("latency", 2, "s"),
    one("topdeck_query_duration", 3, "ns"),
    one("topdeck_query_duration_seconds", 6, "s"),
    one("topdeck_alone_seconds", 1, "s"),
  ]);
  expect(lines.map(({ name, series, units }) => `${name} ${series} ${units}`)).toEqual([
    "doctor_recorded 40 ns",
    "latency 3 ms, s",
    "topdeck_query_duration 3 ns",
    "topdeck_alone_seconds 1 s",
  ]);
  expect(lines[1]!.help).toBe("Time of a request");
});

test("a long name is broken after a separator, not inside a word", () => {
  const name = "topdeck_heap_trim.duration_seconds";
  expect(nameParts(name)).toEqual(["topdeck_", "heap_", "trim.", "duration_", "seconds"]);
  for (const other of ["latency", "a__b_", "_", "a/b-c"])
    expect(nameParts(other).join("")).toBe(other);
});

test("the list of metrics is filtered by parts of name and help text", () => {
  const line = (name: string, help: string) => ({ name, series: 1, units: "", help });
  const lines = [line("http_duration", "Time of a request"), line("db_wait", "Time in a queue")];
  const found = (filter: string) => filterMetrics(lines, filter).map(({ name }) => name);
  expect(found("")).toEqual(["http_duration", "db_wait"]);
  expect(found(" DB ")).toEqual(["db_wait"]);
  expect(found("time http")).toEqual(["http_duration"]);
  expect(found("request queue")).toEqual([]);
});
