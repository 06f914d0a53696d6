import { afterEach, expect, test, vi } from "vitest";

import type { HeatmapColumn, Heatmap } from "../src/lib/api";
import { Distribution } from "../src/lib/distribution";
import { diffColumns, fetchNewer, advanceHeatmap } from "../src/lib/live";

const column = (at: number, count = 1): HeatmapColumn => ({
  start: at * 10,
  end: at * 10 + 10,
  distribution: new Distribution([{ lower: 1, upper: 2, count }]),
  gaps: [],
});
const heatmap = (columns: HeatmapColumn[]): Heatmap => ({
  selector: "a",
  series: 1,
  unit: "ns",
  start: columns[0]!.start,
  end: columns[columns.length - 1]!.end,
  step: 10,
  total: Distribution.EMPTY,
  leftOut: null,
  columns,
});

test("the last column is replaced, and others are appended", () => {
  const current = heatmap([column(0), column(1), column(2)]);
  const next = advanceHeatmap(current, [column(2, 5), column(3)], Distribution.EMPTY);
  expect(next.columns.map((one) => [one.start, one.distribution.count])).toEqual([
    [10, 1],
    [20, 5],
    [30, 1],
  ]);
  expect([next.start, next.end]).toEqual([10, 40]);
  const found = diffColumns(current, next)!;
  expect(found.replaced.map((one) => one.start)).toEqual([20]);
  expect(found.appended.map((one) => one.start)).toEqual([30]);
});

test("an equal heatmap needs no change, another one is redrawn", () => {
  const current = heatmap([column(0), column(1), column(2)]);
  expect(diffColumns(current, { ...current })).toEqual({ replaced: [], appended: [] });
  expect(diffColumns(current, heatmap([column(0), column(1), column(2)]))).toBeNull();
  expect(diffColumns(current, heatmap([column(0), column(1)]))).toBeNull();
  expect(diffColumns(current, heatmap([column(1), column(0), current.columns[2]!]))).not.toEqual({
    replaced: [],
    appended: [],
  });
});

test("without new columns the heatmap stays the same", () => {
  const current = heatmap([column(0), column(1)]);
  expect(advanceHeatmap(current, [], Distribution.EMPTY)).toBe(current);
});

test("another selector or unit is redrawn, though the times are equal", () => {
  const current = heatmap([column(0), column(1)]);
  expect(diffColumns(current, { ...heatmap([column(0), column(1)]), unit: "B" })).toBeNull();
  expect(diffColumns(current, { ...heatmap([column(0), column(1)]), selector: "b" })).toBeNull();
});

afterEach(() => vi.unstubAllGlobals());

/** A server with `valueOf` values in each column; returns its log of requests. */
function server(valueOf: (at: number) => number): string[] {
  const requests: string[] = [];
  const sum = { lower: 0, estimate: 0, upper: 0 };
  vi.stubGlobal("fetch", async (address: string) => {
    const url = new URL(address, "http://localhost/");
    const [from, to] = ["from", "to"].map(
      (name) => Date.parse(url.searchParams.get(name)!) / 10,
    ) as [number, number];
    requests.push(`${url.pathname} ${from} ${to}`);
    const places = Array.from({ length: to - from }, (_, at) => from + at);
    const cells = (count: number) => [{ lower: 1, upper: 2, count }];
    const columns = places.map((at) => ({
      start_ns: at * 1e7,
      end_ns: (at + 1) * 1e7,
      sum,
      cells: [0, valueOf(at)],
      gaps: [],
    }));
    const count = places.reduce((count, at) => count + valueOf(at), 0);
    const head = {
      selector: "a",
      series: 1,
      unit: "ns",
      start_ns: from * 1e7,
      end_ns: to * 1e7,
      step_ns: 1e7,
    };
    const total = { count, sum, cells: cells(count) };
    return Response.json({
      ...head,
      ...total,
      total,
      edges: [[1, 2]],
      columns,
      above: [],
      quantiles: [],
      gaps: [],
    });
  });
  return requests;
}

const { signal } = new AbortController();

test("only new columns are fetched, and the total is the sum of all", async () => {
  const requests = server(() => 1);
  const next = await fetchNewer(heatmap([column(0), column(1), column(2)]), 35, signal);
  expect(requests).toEqual(["/v1/histogram 1 2", "/v1/heatmap 2 4"]);
  expect(next.columns.map((one) => one.start)).toEqual([10, 20, 30]);
  expect(next.total.count).toBe(3);
});

test("after hours in the background one heatmap is fetched, not all the hours", async () => {
  const requests = server(() => 1);
  const next = await fetchNewer(heatmap([column(0), column(1), column(2)]), 1e7 - 5, signal);
  expect(requests).toEqual([`/v1/heatmap ${1e6 - 3} ${1e6}`]);
  expect(next.columns.length).toBe(3);
});

test("late samples of a retained column are drawn", async () => {
  server((at) => (at === 1 ? 7 : 1));
  const next = await fetchNewer(heatmap([column(0), column(1), column(2)]), 35, signal);
  expect(next.columns.map((one) => one.distribution.count)).toEqual([7, 1, 1]);
  expect(next.total.count).toBe(9);
});
