import { expect, test } from "vitest";

import { Distribution, exact } from "../src/lib/distribution";
import {
  filterRows,
  joinRows,
  sortRows,
  type ProcessRow,
  type Process,
  type ProcessList,
} from "../src/lib/processes";
import type { Program } from "../src/lib/programs";

const process = (
  pid: number,
  name: string,
  cpu_cores: number | null,
  resident_bytes = 0,
  program: Process["program"] = null,
): Process => ({ pid, name, state: "S", threads: 1, cpu_cores, resident_bytes, program });
const table = (...processes: Process[]): ProcessList => ({
  host: "box",
  reason: null,
  interval_seconds: 1,
  total: processes.length,
  processes,
});

/** A program with `times` equal latencies. */
function program(
  generation: string,
  name: string,
  more: Partial<Program> = {},
  times = 0,
  unit = "ns",
): Program {
  const at = exact(1_000);
  const distribution = new Distribution(
    [{ lower: 1_000, upper: 1_000, count: times }],
    exact(1_000 * times),
    { min: at, max: at },
  );
  const timing = times > 0 ? { metric: "answer", unit, distribution, selector: "answer" } : null;
  return {
    id: `${name} ${generation}`,
    process: name,
    generation,
    format: "",
    isUp: true,
    timing,
    inFlight: null,
    oldest: null,
    exit: null,
    ...more,
  };
}

const names = (of: readonly ProcessRow[]) =>
  of.map((one) => `${one.name} ${one.pid || `#${one.generation}`}`);

test("a program and the process that holds its generation are one row", () => {
  const of = (process: string, generation: string | null) => ({ process, generation, format: "" });
  const list = table(
    process(7, "java", 0.5, 0, of("Main", "1")),
    process(8, "java", 0.1, 0, of("Main", null)),
    process(9, "sh", 0),
  );
  const ended = program("2", "Main", { isUp: false });
  const rows = joinRows(list, [program("1", "Main"), ended, program("short", "Main")]);
  expect(names(rows)).toEqual(["Main 7", "Main #2", "Main #short", "java 8", "sh 9"]);
  expect(rows.map((one) => [one.process?.cpu_cores ?? null, one.program !== null])).toEqual([
    [0.5, true],
    [null, true],
    [null, true],
    [0.1, false],
    [0, false],
  ]);
  expect(names(joinRows(null, [program("1", "Main")]))).toEqual(["Main #1"]);
});

test("the largest comes first, unknown values last in either direction", () => {
  const of = joinRows(
    table(process(1, "a", 0.1, 5), process(2, "b", null, 9), process(3, "c", 0.7, 7)),
    [],
  );
  const order = (by: Parameters<typeof sortRows>[1], isReversed = false) =>
    names(sortRows(of, by, isReversed, 1_000)).join(", ");
  expect(order("cpu")).toBe("c 3, a 1, b 2");
  expect(order("cpu", true)).toBe("a 1, c 3, b 2");
  expect(order("memory")).toBe("b 2, c 3, a 1");
  expect(order("name")).toBe("a 1, b 2, c 3");
  expect(order("name", true)).toBe("c 3, b 2, a 1");
  expect(order("rate")).toBe("a 1, b 2, c 3");
});

test("latencies of different units are compared, and counts", () => {
  const of = joinRows(null, [
    program("1", "slow", {}, 2, "ms"),
    program("2", "fast", { inFlight: [1, 2, 0, 0, 0], oldest: 4 }, 9),
    program("3", "idle", { inFlight: [0, 0, 0, 0, 0] }),
  ]);
  expect(names(sortRows(of, "p99", false, 1_000))).toEqual(["slow #1", "fast #2", "idle #3"]);
  expect(names(sortRows(of, "rate", false, 1_000))).toEqual(["fast #2", "slow #1", "idle #3"]);
  expect(names(sortRows(of, "flight", false, 1_000))).toEqual(["fast #2", "idle #3", "slow #1"]);
  expect(names(sortRows(of, "oldest", false, 1_000))[0]).toBe("fast #2");
});

test("every word of a filter has to match the row", () => {
  const java = process(71, "java", 0, 0, { process: "Main", generation: "1", format: "jvm" });
  const of = joinRows(table(java, process(8, "sh", 0)), [
    program("1", "Main", { format: "jvm" }, 3),
  ]);
  expect(names(filterRows(of, "JVM 71"))).toEqual(["Main 71"]);
  expect(names(filterRows(of, "answer"))).toEqual(["Main 71"]);
  expect(names(filterRows(of, "sleeping"))).toHaveLength(2);
  expect(names(filterRows(of, "jvm 8"))).toEqual([]);
  expect(names(filterRows(of, "  "))).toHaveLength(2);
});
