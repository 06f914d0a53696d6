import { expect, test } from "vitest";

import { ApiError } from "../src/lib/api";
import { exact } from "../src/lib/distribution";
import type { QueryResult } from "../src/lib/query";
import {
  coveredSeconds,
  STATS,
  unrelatedNotes,
  buildQueries,
  buildRows,
  missingReason,
  type ResourceRow,
  type HostData,
} from "../src/lib/resourceMetrics";

const WINDOW = 10e3;
const ENDS = [10e3, 20e3, 30e3];

/** One series; null is a window without samples. */
function result(
  values: readonly (number | null)[],
  labels: Record<string, string> = {},
): QueryResult {
  const points = values.flatMap((value, at) =>
    value === null ? [] : [{ time: ENDS[at]!, value: exact(value) }],
  );
  return {
    unit: "",
    series: points.length > 0 ? [{ labels, points }] : [],
    maxima: [],
    warnings: [],
    gaps: [],
  };
}

/** A host whose samples cover `clock` seconds of each window, with results of some stats. */
function hostData(
  clock: readonly (number | null)[],
  known: Record<string, QueryResult | ApiError>,
  more: Partial<HostData> = {},
): HostData {
  const results = STATS.map(
    (stat) => known[`${stat.resource} ${stat.name}`] ?? result([null, null, null]),
  );
  return {
    host: "web-1",
    metrics: new Set(STATS.map((stat) => stat.metric)),
    disks: ["sda"],
    interfaces: ["eth0"],
    results: [result(clock), ...results],
    ends: ENDS,
    window: WINDOW,
    blockIoReason: "block_io is disabled in that host's [host] settings",
    ...more,
  };
}

const all = (row: ResourceRow) => Object.values(row.cells).flat();

function stat(of: HostData, resource: string, name: string) {
  return all(buildRows(of).find((row) => row.resource === resource)!).find(
    (one) => one.name === name,
  )!;
}

test("a share is of the time that samples cover, not of the range", () => {
  // Two samples in the second window, one in the third, none in the first.
  const host = hostData([null, 20, 10], { "cpu CPU busy": result([null, 5, 10]) });
  expect(stat(host, "cpu", "CPU busy")).toMatchObject({
    text: "50 %",
    note: "mean; max 100 % in 10 s",
    sparkline: [null, 0.25, 1],
  });
  expect(coveredSeconds(host)).toBe(30);
});

test("a share is at most 100 % though clock ticks are coarse", () => {
  const host = hostData([10, 10, 9.9], {
    "disk I/O time": result([10, 10, 10], { device: "sda" }),
  });
  expect(stat(host, "disk", "I/O time")).toMatchObject({
    text: "100 % of time",
    sparkline: [1, 1, 1],
  });
});

test("counts are totals, levels are the last, rates are per second", () => {
  const host = hostData([10, 10, 10], {
    "memory OOM kills": result([0, 2, 1]),
    "cpu load average (1 min)": result([0.5, 7, 1]),
    "network receive": result([1e6, 3e6, 2e6], { interface: "eth0" }),
    "memory in use": result([0.25, 0.75, 0.5]),
  });
  expect(stat(host, "memory", "OOM kills")).toMatchObject({
    text: "3",
    note: "total; max 2 in 10 s",
  });
  expect(stat(host, "cpu", "load average (1 min)")).toMatchObject({
    text: "1 task",
    note: "last; max 7 tasks",
  });
  expect(stat(host, "network", "receive")).toMatchObject({
    text: "200 kB/s",
    note: "mean; max 300 kB/s in 10 s",
  });
  expect(stat(host, "memory", "in use")).toMatchObject({
    text: "50 %",
    note: "last; max 75 %",
  });
});

test("a sampled 0 is shown as 0", () => {
  const host = hostData([10, 10, 10], { "disk I/O errors": result([0, 0, 0], { device: "sda" }) });
  expect(stat(host, "disk", "I/O errors")).toMatchObject({
    text: "0 requests",
    isKnown: true,
    note: "",
    sparkline: [],
  });
});

test("a stat of all disks is shown with each", () => {
  const host = hostData(
    [10, 10, 10],
    { "disk PSI I/O some (all disks)": result([1, 0, 0]) },
    { disks: ["sda", "sdb"] },
  );
  const found = buildRows(host).filter((row) => row.resource === "disk");
  expect(found.map((row) => row.device)).toEqual(["sda", "sdb"]);
  expect(found.map((row) => row.cells.saturation[1]!.text)).toEqual([
    "3.33 % of time",
    "3.33 % of time",
  ]);
});

const nothing = new Set(["host_load_average"]);
test.each<[string, HostData, string, string, RegExp]>([
  [
    "no series",
    hostData([10, 10, 10], {}, { metrics: nothing }),
    "memory",
    "swap-out",
    /^not collected: procfs is disabled .* or its kernel/,
  ],
  [
    "no program in the kernel",
    hostData([10, 10, 10], {}, { metrics: nothing }),
    "disk",
    "I/O errors",
    /^not collected: block_io is disabled/,
  ],
  [
    "no reading in the time",
    hostData([10, 10, 10], {}),
    "disk",
    "I/O errors",
    /^no samples in the range$/,
  ],
  [
    "another disk alone",
    hostData([10, 10, 10], { "disk I/O errors": result([1, 1, 1], { device: "sdb" }) }),
    "disk",
    "I/O errors",
    /^no samples in the range$/,
  ],
  [
    "refused",
    hostData([10, 10, 10], { "tcp retransmits": new ApiError(422, "too many samples") }),
    "tcp",
    "retransmits",
    /^query failed: too many samples$/,
  ],
  [
    "no clock",
    hostData([null, null, null], { "disk I/O time": result([1, 2, 3], { device: "sda" }) }),
    "disk",
    "I/O time",
    /^unknown: no CPU time samples/,
  ],
])("a missing value is not 0: %s", (_, host, resource, name, why) => {
  const found = stat(host, resource, name);
  expect(found.isKnown).toBe(false);
  expect(found.text).toMatch(why);
  expect(found.sparkline).toEqual([]);
});

test("every resource has its rows, and every query selects the host alone", () => {
  expect(
    buildRows(hostData([1, 1, 1], {})).map((row) => `${row.resource} ${row.device}`.trim()),
  ).toEqual(["cpu", "memory", "disk sda", "network eth0", "tcp", "machine"]);
  const bare = buildRows(
    hostData([1, 1, 1], {}, { disks: [], interfaces: [], metrics: new Set() }),
  );
  expect(bare.map((row) => row.resource)).toEqual([
    "cpu",
    "memory",
    "disk",
    "network",
    "tcp",
    "machine",
  ]);
  expect(bare.flatMap(all).some((one) => one.isKnown)).toBe(false);
  const queries = buildQueries('a"b', WINDOW);
  expect(queries.length).toBe(STATS.length + 1);
  for (const text of queries) {
    expect(text).toContain('host="a\\"b"');
    expect(text.match(/host_\w+\{/g)).toHaveLength(text.match(/host="/g)!.length);
    expect(text).toContain("[10000ms]");
  }
});

test("the reason why a BPF program is not loaded", () => {
  const notes = [
    "block I/O has sums and means only, no distributions: run as root",
    "there are no times of tasks waiting: locked down",
  ];
  expect(missingReason("block_io", undefined, notes)).toMatch(/^block_io is disabled/);
  expect(missingReason("block_io", null, notes)).toMatch(/^no data from this host/);
  expect(missingReason("block_io", true, notes)).toMatch(/^no events yet/);
  expect(missingReason("block_io", false, notes)).toBe(notes[0]);
  expect(missingReason("run_queue", false, notes)).toBe(notes[1]);
  expect(missingReason("run_queue", false, [])).toMatch(/host_collector_warning/);
  const programs = "processes are read out of /proc, at more cost: run as root";
  expect(unrelatedNotes([...notes, programs])).toEqual([programs]);
});
