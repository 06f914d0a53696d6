import { afterEach, expect, test, vi } from "vitest";

import { fetchPrograms, buildProcessQueries, buildTimingQuery } from "../src/lib/programs";

const NS = 1e6;
const TO = 60e3;

type Labels = Record<string, string>;

/** Results by query: labels with their last number, or with a count of equal latencies. */
function serve(
  answers: Record<string, [Labels, number][]>,
  series: { name: string; unit: string | null }[],
  times: Record<string, [Labels, number][]> = {},
): void {
  const result = (kind: string, unit: string | null, data: unknown) => ({
    kind,
    unit,
    data,
    maxima: [],
    warnings: [],
    gaps: [],
  });
  vi.stubGlobal("fetch", (input: string | URL | Request) => {
    const url = new URL(String(input instanceof Request ? input.url : input), "http://localhost");
    const query = url.searchParams.get("query") ?? "";
    const points = (value: unknown) => [{ time_ns: TO * NS, value }];
    const distribution = (count: number) => {
      const at = { lower: 1_000, estimate: 1_000, upper: 1_000 };
      return {
        count,
        sum: { lower: 0, estimate: 0, upper: 0 },
        cells: [{ lower: 1_000, upper: 1_000, count }],
        min: at,
        max: at,
      };
    };
    const body = url.pathname.endsWith("/texts")
      ? {
          texts: [
            {
              labels: { process: "cart", generation: "2", host: "web-1" },
              time_ns: 7 * NS,
              text: "terminated with 1 operation in flight, for 3.000 s",
            },
          ],
        }
      : url.pathname.endsWith("/series")
        ? {
            total: series.length,
            series: series.map((one) => ({ ...one, labels: {}, kind: "cumulative-histogram" })),
          }
        : query in answers
          ? result(
              "vector",
              null,
              answers[query]!.map(([labels, value]) => ({ labels, points: points(value) })),
            )
          : result(
              "vector",
              "ns",
              (times[query] ?? []).map(([labels, count]) => ({
                labels,
                points: points(distribution(count)),
              })),
            );
    return Promise.resolve(
      new Response(JSON.stringify(body), { headers: { "Content-Type": "application/json" } }),
    );
  });
}

afterEach(() => vi.unstubAllGlobals());

const fetchAll = () => fetchPrograms("web-1", [0, TO], 5_000, new AbortController().signal);
const [up, inFlight, oldest] = buildProcessQueries("web-1", TO);

test("a program has its busiest timing and its operations in flight", async () => {
  const [shop, cart] = [
    { process: "shop", generation: "7" },
    { process: "cart", generation: "2" },
  ];
  serve(
    {
      [up]: [
        [shop, 1],
        [cart, 0],
        [{ process: "gone", generation: "1" }, 0],
      ],
      [inFlight]: [
        [{ ...cart, age: "1s-10s" }, 1],
        [{ ...shop, age: "0s-1s" }, 3],
        [{ ...shop, age: "60s+" }, 2],
      ],
      [oldest]: [
        [shop, 75],
        [cart, 0],
      ],
    },
    [
      { name: "answer", unit: "ns" },
      { name: "lookup", unit: "ns" },
      { name: "size", unit: "B" },
    ],
    {
      [buildTimingQuery("answer", "web-1", 5_000)]: [[shop, 10]],
      [buildTimingQuery("lookup", "web-1", 5_000)]: [[shop, 50]],
      [buildTimingQuery("size", "web-1", 5_000)]: [[shop, 900]],
    },
  );
  const report = await fetchAll();
  expect(report.programs.map((one) => [one.process, one.generation, one.isUp])).toEqual([
    ["shop", "7", true],
  ]);
  expect(report.exited.map((one) => [one.process, one.generation, one.isUp])).toEqual([
    ["cart", "2", false],
    ["gone", "1", false],
  ]);
  const [first] = report.programs;
  const [second, third] = report.exited;
  expect(first!.timing?.metric).toBe("lookup");
  expect(first!.timing?.distribution.count).toBe(50);
  expect(first!.inFlight).toEqual([3, 0, 0, 2, 0]);
  expect(first!.oldest).toBe(75);
  expect(second).toMatchObject({
    timing: null,
    inFlight: [0, 1, 0, 0, 0],
    oldest: null,
    exit: { text: "terminated with 1 operation in flight, for 3.000 s", time: 7 },
  });
  expect(third!.exit).toBe(null);
});

test("the exit of an earlier process stays when its generation is held again", async () => {
  const cart = { process: "cart", generation: "2" };
  serve({ [up]: [[cart, 1]], [inFlight]: [[{ ...cart, age: "below 1s" }, 4]], [oldest]: [] }, []);
  const { programs, exited } = await fetchAll();
  expect(programs.map((one) => [one.process, one.isUp, one.exit])).toEqual([["cart", true, null]]);
  expect(exited).toMatchObject([{ process: "cart", isUp: false, inFlight: null }]);
  expect(exited[0]!.exit?.time).toBe(7);
});

test("two of a program are two, and where nothing records there is nothing", async () => {
  const of = (generation: string) => ({ process: "shop", generation });
  serve(
    {
      [up]: [
        [of("10"), 1],
        [of("9"), 1],
      ],
      [inFlight]: [],
      [oldest]: [],
    },
    [],
  );
  expect((await fetchAll()).programs.map((one) => [one.generation, one.inFlight])).toEqual([
    ["9", null],
    ["10", null],
  ]);
  serve({ [up]: [], [inFlight]: [], [oldest]: [] }, []);
  expect(await fetchAll()).toMatchObject({ programs: [], exited: [] });
});
