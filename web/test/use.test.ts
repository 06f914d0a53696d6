import { expect, test } from "vitest";

import { Refused } from "../src/lib/api";
import { exact } from "../src/lib/distribution";
import type { Answer } from "../src/lib/question";
import {
  covered,
  FIGURES,
  otherNotes,
  questions,
  rows,
  without,
  type Row,
  type Told,
} from "../src/lib/use";

const WINDOW = 10e3;
const ENDS = [10e3, 20e3, 30e3];

/** One stream; null is a window in which nothing was read. */
function answer(values: readonly (number | null)[], labels: Record<string, string> = {}): Answer {
  const points = values.flatMap((value, at) =>
    value === null ? [] : [{ time: ENDS[at]!, value: exact(value) }],
  );
  return {
    unit: "",
    streams: points.length > 0 ? [{ labels, points }] : [],
    maxima: [],
    warnings: [],
    gaps: [],
  };
}

/** A host whose clock went so many seconds in each window, with answers to some figures. */
function told(
  clock: readonly (number | null)[],
  known: Record<string, Answer | Refused>,
  more: Partial<Told> = {},
): Told {
  const answers = FIGURES.map(
    (figure) => known[`${figure.resource} ${figure.name}`] ?? answer([null, null, null]),
  );
  return {
    host: "web-1",
    metrics: new Set(FIGURES.map((figure) => figure.metric)),
    disks: ["sda"],
    interfaces: ["eth0"],
    answers: [answer(clock), ...answers],
    ends: ENDS,
    window: WINDOW,
    withoutBlockIo: "block_io is off in the settings of that host",
    ...more,
  };
}

const all = (row: Row) => Object.values(row.cells).flat();

function figure(of: Told, resource: string, name: string) {
  return all(rows(of).find((row) => row.resource === resource)!).find((one) => one.name === name)!;
}

test("a share is of the time that was read, not of the time that was asked for", () => {
  // Two readings in the second window, one in the third, none in the first.
  const host = told([null, 20, 10], { "processors busy": answer([null, 5, 10]) });
  expect(figure(host, "processors", "busy")).toMatchObject({
    text: "50.0 %",
    note: "on average, 100 % in the worst 10 s",
    course: [null, 0.25, 1],
  });
  expect(covered(host)).toBe(30);
});

test("ticks of a clock make no more than all of it", () => {
  const host = told([10, 10, 9.9], { "disk busy": answer([10, 10, 10], { device: "sda" }) });
  expect(figure(host, "disk", "busy")).toMatchObject({ text: "100 %", course: [1, 1, 1] });
});

test("counts are added up, levels are those of the end, rates are of a second", () => {
  const host = told([10, 10, 10], {
    "memory killed for want of it": answer([0, 2, 1]),
    "processors load of 1 min": answer([0.5, 7, 1]),
    "network received": answer([1e6, 3e6, 2e6], { interface: "eth0" }),
    "memory in use": answer([0.25, 0.75, 0.5]),
  });
  expect(figure(host, "memory", "killed for want of it")).toMatchObject({
    text: "3 processes",
    note: "in all, 2 processes in the worst 10 s",
  });
  expect(figure(host, "processors", "load of 1 min")).toMatchObject({
    text: "1 task",
    note: "at the end, 7 tasks at the most",
  });
  expect(figure(host, "network", "received")).toMatchObject({
    text: "200 kB/s",
    note: "on average, 300 kB/s in the worst 10 s",
  });
  expect(figure(host, "memory", "in use")).toMatchObject({
    text: "50.0 %",
    note: "at the end, 75.0 % at the most",
  });
});

test("a nought that was read is one", () => {
  const host = told([10, 10, 10], { "disk failed": answer([0, 0, 0], { device: "sda" }) });
  expect(figure(host, "disk", "failed")).toMatchObject({
    text: "0 requests",
    isKnown: true,
    note: "",
    course: [],
  });
});

test("what is told of all disks stands with each", () => {
  const host = told(
    [10, 10, 10],
    { "disk some task waited, of any disk": answer([1, 0, 0]) },
    { disks: ["sda", "sdb"] },
  );
  const found = rows(host).filter((row) => row.resource === "disk");
  expect(found.map((row) => row.device)).toEqual(["sda", "sdb"]);
  expect(found.map((row) => row.cells.saturation[1]!.text)).toEqual([
    "3.3 % of the time",
    "3.3 % of the time",
  ]);
});

const nothing = new Set(["host_load"]);
test.each<[string, Told, string, string, RegExp]>([
  [
    "no series",
    told([10, 10, 10], {}, { metrics: nothing }),
    "memory",
    "swapped out",
    /^not collected: procfs is off .* or its kernel/,
  ],
  [
    "no program in the kernel",
    told([10, 10, 10], {}, { metrics: nothing }),
    "disk",
    "failed",
    /^not collected: block_io is off/,
  ],
  ["no reading in the time", told([10, 10, 10], {}), "disk", "failed", /^not read in this time$/],
  [
    "another disk alone",
    told([10, 10, 10], { "disk failed": answer([1, 1, 1], { device: "sdb" }) }),
    "disk",
    "failed",
    /^not read in this time$/,
  ],
  [
    "refused",
    told([10, 10, 10], { "tcp sent again": new Refused(422, "too many samples") }),
    "tcp",
    "sent again",
    /^not answered: too many samples$/,
  ],
  [
    "no clock",
    told([null, null, null], { "disk busy": answer([1, 2, 3], { device: "sda" }) }),
    "disk",
    "busy",
    /^not known: without times of processors/,
  ],
])("unknown is no nought: %s", (_, host, resource, name, why) => {
  const found = figure(host, resource, name);
  expect(found.isKnown).toBe(false);
  expect(found.text).toMatch(why);
  expect(found.course).toEqual([]);
});

test("every resource has its columns, and every question names the host alone", () => {
  expect(rows(told([1, 1, 1], {})).map((row) => `${row.resource} ${row.device}`.trim())).toEqual([
    "processors",
    "memory",
    "disk sda",
    "network eth0",
    "tcp",
    "machine",
  ]);
  const bare = rows(told([1, 1, 1], {}, { disks: [], interfaces: [], metrics: new Set() }));
  expect(bare.map((row) => row.resource)).toEqual([
    "processors",
    "memory",
    "disk",
    "network",
    "tcp",
    "machine",
  ]);
  expect(bare.flatMap(all).some((one) => one.isKnown)).toBe(false);
  const asked = questions('a"b', WINDOW);
  expect(asked.length).toBe(FIGURES.length + 1);
  for (const text of asked) {
    expect(text).toContain('host="a\\"b"');
    expect(text.match(/host_\w+\{/g)).toHaveLength(text.match(/host="/g)!.length);
    expect(text).toContain("[10000ms]");
  }
});

test("why a program in the kernel is not at work", () => {
  const notes = [
    "block I/O has sums and means only, no distributions: run as root",
    "there are no times of tasks waiting: locked down",
  ];
  expect(without("block_io", undefined, notes)).toMatch(/^block_io is off/);
  expect(without("block_io", null, notes)).toMatch(/^that host told nothing/);
  expect(without("block_io", true, notes)).toMatch(/^nothing of it has happened/);
  expect(without("block_io", false, notes)).toBe(notes[0]);
  expect(without("run_queue", false, notes)).toBe(notes[1]);
  expect(without("run_queue", false, [])).toMatch(/host_note/);
  const programs = "processes are read out of /proc, at more cost: run as root";
  expect(otherNotes([...notes, programs])).toEqual([programs]);
});
