import { afterEach, expect, test, vi } from "vitest";

import type { Column, Heatmap } from "../src/lib/api";
import { Distribution } from "../src/lib/distribution";
import { difference, follow, moved } from "../src/lib/live";

const column = (at: number, count = 1): Column => ({
  start: at * 10,
  end: at * 10 + 10,
  distribution: new Distribution([{ lower: 1, upper: 2, count }]),
  gaps: [],
});
const heatmap = (columns: Column[]): Heatmap => ({
  selector: "a",
  series: 1,
  unit: "ns",
  start: columns[0]!.start,
  end: columns[columns.length - 1]!.end,
  step: 10,
  total: Distribution.EMPTY,
  columns,
});

test("the last column goes on, and others come", () => {
  const held = heatmap([column(0), column(1), column(2)]);
  const next = moved(held, [column(2, 5), column(3)], Distribution.EMPTY);
  expect(next.columns.map((one) => [one.start, one.distribution.count])).toEqual([
    [10, 1],
    [20, 5],
    [30, 1],
  ]);
  expect([next.start, next.end]).toEqual([10, 40]);
  const found = difference(held, next)!;
  expect(found.replaced.map((one) => one.start)).toEqual([20]);
  expect(found.pushed.map((one) => one.start)).toEqual([30]);
});

test("what is the same needs nothing, what is another begins anew", () => {
  const held = heatmap([column(0), column(1), column(2)]);
  expect(difference(held, { ...held })).toEqual({ replaced: [], pushed: [] });
  expect(difference(held, heatmap([column(0), column(1), column(2)]))).toBeNull();
  expect(difference(held, heatmap([column(0), column(1)]))).toBeNull();
  expect(difference(held, heatmap([column(1), column(0), held.columns[2]!]))).not.toEqual({
    replaced: [],
    pushed: [],
  });
});

test("nothing new leaves all as it is", () => {
  const held = heatmap([column(0), column(1)]);
  expect(moved(held, [], Distribution.EMPTY)).toBe(held);
});

test("of something else nothing is kept, though it is at the same times", () => {
  const held = heatmap([column(0), column(1)]);
  expect(difference(held, { ...heatmap([column(0), column(1)]), unit: "B" })).toBeNull();
  expect(difference(held, { ...heatmap([column(0), column(1)]), selector: "b" })).toBeNull();
});

afterEach(() => vi.unstubAllGlobals());

/** A server with one value in each of so many columns; what it was asked for. */
function server(valueOf: (at: number) => number): string[] {
  const asked: string[] = [];
  const sum = { lower: 0, estimate: 0, upper: 0 };
  vi.stubGlobal("fetch", async (address: string) => {
    const url = new URL(address, "http://localhost/");
    const [from, to] = ["from", "to"].map(
      (name) => Date.parse(url.searchParams.get(name)!) / 10,
    ) as [number, number];
    asked.push(`${url.pathname} ${from} ${to}`);
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
  return asked;
}

const { signal } = new AbortController();

test("what is new is asked for, and the whole is the sum of its columns", async () => {
  const asked = server(() => 1);
  const next = await follow(heatmap([column(0), column(1), column(2)]), 35, signal);
  expect(asked).toEqual(["/v1/histogram 1 2", "/v1/heatmap 2 4"]);
  expect(next.columns.map((one) => one.start)).toEqual([10, 20, 30]);
  expect(next.total.count).toBe(3);
});

test("nobody looked for hours: a picture is asked for, not all the hours", async () => {
  const asked = server(() => 1);
  const next = await follow(heatmap([column(0), column(1), column(2)]), 1e7 - 5, signal);
  expect(asked).toEqual([`/v1/heatmap ${1e6 - 3} ${1e6}`]);
  expect(next.columns.length).toBe(3);
});

test("what comes late into a column is drawn", async () => {
  server((at) => (at === 1 ? 7 : 1));
  const next = await follow(heatmap([column(0), column(1), column(2)]), 35, signal);
  expect(next.columns.map((one) => one.distribution.count)).toEqual([7, 1, 1]);
  expect(next.total.count).toBe(9);
});
