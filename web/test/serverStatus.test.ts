import { expect, test } from "vitest";

import {
  acknowledgements,
  findNotes,
  findProblems,
  statusTiles,
  type StatusJson,
} from "../src/lib/serverStatus";

const NOW = Date.UTC(2026, 10, 26, 12) * 1e6;
const MINUTE = 60e9;

function status(changes: Partial<StatusJson> = {}): StatusJson {
  return {
    version: "0.1.0",
    now_ns: NOW,
    start_time_ns: NOW - 60 * MINUTE,
    store: null,
    journal: {
      segments: 1,
      segment_bytes: 0,
      end: 0,
      full_reason: null,
      failed: false,
      subscribers: [],
      gaps: [],
    },
    threads: [{ name: "ledger", down: 0, panics: 3, last_panic: "index out of bounds" }],
    quarantined: [],
    damage: [],
    sources: [],
    ...changes,
  };
}

const target = (name: string, state: "up" | "down") => ({
  kind: "scrape" as const,
  name,
  url: "http://127.0.0.1:9100/metrics",
  labels: {},
  interval_ns: 15e9,
  timeout_ns: 10e9,
  state,
  since_ns: NOW - 5 * MINUTE,
  last_ns: NOW,
  last_duration_ns: 1e6,
  last_samples: 10,
  last_error: { at_ns: NOW - 90 * MINUTE, reason: "connection refused" },
});

test("a healthy server has no problem, whatever failed and recovered before", () => {
  const { journal } = status();
  const subscribers = [
    {
      name: "store",
      position: 9,
      lag: 0,
      committed_ns: NOW,
      pins_records: true,
      damaged: false,
    },
  ];
  const healthy = status({
    journal: { ...journal, subscribers },
    targets: [target("node", "up")],
    remotes: [
      {
        name: "north",
        url: "https://north:7717",
        lag: 3,
        acknowledged_ns: NOW,
        last_error: null,
        message: null,
      },
    ],
    listeners: [{ format: "StatsD", rejected_lines: 0 }],
  });
  expect(findProblems(healthy)).toEqual([]);
  expect(findNotes(healthy)).toEqual([]);
});

test("what rejects data comes before what is missing, each with an action", () => {
  const { journal } = status();
  const problems = findProblems(
    status({
      journal: { ...journal, full_reason: "no space left on the disk" },
      targets: [target("node", "down")],
      sources: [
        {
          id: "07",
          name: "otlp shop",
          state: "absent",
          last_ns: NOW - 2 * MINUTE,
          interval_ns: 10e9,
          absent_after_ns: 50e9,
        },
      ],
    }),
  );
  expect(problems.map((one) => one.what)).toEqual([
    "New data is rejected: no space left on the disk.",
    "Scrape node has been down for 5 min.",
    "Source otlp shop has sent nothing for 2 min.",
  ]);
  expect(problems[1]!.action).toBe("Reason: connection refused.");
  expect(problems[2]!.action).toBe(
    "It usually sends every 10 s. Check whether the sender runs and reaches this server.",
  );
});

test("acknowledged damage is no problem, and stays listed, the latest first", () => {
  const entry = (location: string, acknowledged_ns: number) => ({
    location,
    records: 1,
    found_ns: NOW - 60 * MINUTE,
    acknowledged_ns,
    note: "",
  });
  const seen = status({
    damage: [
      { location: "records 3..4", records: 1, remedy: "repair", acknowledged: true },
      { location: "records 8..9", records: 1, remedy: "repair", acknowledged: false },
    ],
    quarantined: [{ input: "record 5", reason: "it panicked 3 times", acknowledged: true }],
    acknowledged_damage: [entry("records 3..4", NOW - 2 * MINUTE), entry("record 5", NOW - MINUTE)],
  });
  expect(findProblems(seen).map((one) => one.what)).toEqual([
    "Damaged: records 8..9, 1 record lost.",
  ]);
  expect(acknowledgements(seen).map((one) => one.location)).toEqual(["record 5", "records 3..4"]);
  expect(acknowledgements(status())).toEqual([]);
});

test("a journal that stopped, damage, gaps, threads and tokens are named", () => {
  const { journal } = status();
  const problems = findProblems(
    status({
      journal: { ...journal, failed: true, gaps: [{ batches: 2, reason: "corrupt segment" }] },
      damage: [{ location: "segment 3", records: 1, remedy: "restore a snapshot" }],
      threads: [{ name: "pull", down: 1, panics: 1, last_panic: "BUG: no job" }],
      quarantined: [{ input: "ledger record 7", reason: "it panicked 3 times" }],
      tokens_error: "line 2: unknown scope",
    }),
  );
  expect(problems.map((one) => `${one.what} ${one.action}`)).toEqual([
    "The journal stopped after a disk error: nothing is acknowledged. Repair the disk, then " +
      "restart topdeck. The log has the error.",
    "Damaged: segment 3, 1 record lost. Restore a snapshot.",
    "The journal has gaps: 2 batches lost. Reason: corrupt segment. Loss audit names the data.",
    "Thread pull is down after 1 panic. Report the panic, which is a bug: BUG: no job.",
    "Ledger record 7 is skipped: it panicked 3 times. Report the panic, which is a bug; the " +
      "input stays on disk.",
    "Tokens are not reloaded: line 2: unknown scope. Repair the file; the previous tokens stay " +
      "in force.",
  ]);
});

// The page said healthy, and neither where the data is nor how much room is left.
test("the status has the free disk space and the directory, and says what its numbers are", () => {
  const data = { dir: "/var/lib/topdeck", free_bytes: 12e9, total_bytes: 100e9 };
  const tiles = statusTiles(status({ data }));
  const of = (name: string) => tiles.find((tile) => tile.name === name);
  expect(of("disk space free")).toEqual({
    name: "disk space free",
    value: "12 GB",
    detail: "12 % of 100 GB",
    meaning: "data in /var/lib/topdeck",
  });
  expect(of("journal")?.meaning).toContain("commit log");
  // A simulated disk has no file system.
  const unknown = statusTiles(status({ data: { ...data, free_bytes: null, total_bytes: null } }));
  expect(unknown.map((tile) => tile.name)).not.toContain("disk space free");
});
