import { expect, test } from "vitest";

import {
  auditVerdict,
  describeGap,
  describeLoss,
  discrepancies,
  flowStages,
  gapRows,
  lastProblem,
  sourceTotals,
  type AuditProducer,
  type AuditStage,
  type AuditState,
} from "../src/lib/audit";

const counts = (values: number, duplicates = 0) => ({
  batches: 1,
  samples: values,
  values,
  duplicates,
  undecodable: 0,
  missing: 0,
});

const stage = (name: string, changes: Partial<AuditStage> = {}): AuditStage => ({
  stage: name,
  received: counts(10),
  acknowledged: counts(10),
  stored: counts(10),
  losses: [],
  discrepancy: 0,
  unknown_batches: 0,
  reconciled: true,
  reason: "the store has all records of the journal",
  ...changes,
});

const producer = (changes: Partial<AuditProducer> = {}): AuditProducer => ({
  id: "01",
  name: "shop",
  source: null,
  losses: [],
  stages: [stage("journal"), stage("store")],
  ...changes,
});

const LOSS = { reason: "queue full", gaps: 1, samples_lost: 3, gaps_of_unknown_size: 0 };

const audited = (producers: AuditProducer[], changes: Partial<AuditState> = {}): AuditState => ({
  audit: {
    start_time_ns: 0,
    process_start_time_ns: 0,
    position: 2,
    reconciled: producers.every((one) => one.stages.every(({ reconciled }) => reconciled)),
    producers,
    warnings: [],
  },
  now: 1_000,
  end: 2,
  subscribers: [],
  remotes: [],
  gaps: [],
  journalGaps: [],
  ...changes,
});

test("the last problem of a sender is the text of what was rejected", () => {
  const source = { received: 5, accepted: 4, buffered: 0, dropped: [{ reason: "r", values: 1 }] };
  const last_problem = { time_ns: 1e9, text: 'metric "a": no temporality' };
  expect(lastProblem(producer({ source: { ...source, last_problem } }), 61e3)).toBe(
    '1 min ago: metric "a": no temporality',
  );
  expect(lastProblem(producer({ source }), 0)).toBe("1 values dropped: r");
  expect(lastProblem(producer({ losses: [LOSS] }), 0)).toBe("3 samples or records: queue full");
  expect(lastProblem(producer(), 0)).toBe("");
});

test("the verdict is complete only if nothing at all is lost", () => {
  const source = { received: 5, accepted: 4, buffered: 0, dropped: [{ reason: "r", values: 1 }] };
  const gap = { producer: "shop", start: 0, end: 1, lost: null, reason: "torn" };
  const warned = audited([producer()]);
  warned.audit.warnings.push("the ledger of the journal begins anew");
  expect(auditVerdict(audited([producer()]))).toBe("complete");
  for (const state of [
    audited([producer({ losses: [LOSS] })]),
    audited([producer({ source })]),
    audited([producer({ stages: [stage("store", { losses: [LOSS] })] })]),
    audited([producer({ stages: [stage("store", { unknown_batches: 1 })] })]),
    audited([producer()], { gaps: [gap] }),
    audited([producer()], { journalGaps: [{ first: 1, batches: 1, reason: "torn" }] }),
    warned,
  ]) {
    expect(auditVerdict(state)).toBe("losses");
  }
  const bad = stage("remote north", { reconciled: false, reason: "1 batches missing" });
  const unexplained = audited([producer({ stages: [bad] })]);
  expect(auditVerdict(unexplained)).toBe("unreconciled");
  const [found] = discrepancies(unexplained.audit.producers);
  expect(found).toMatchObject({ producer: "shop", stage: "remote north" });
  expect(found!.action).toMatch(/--server with the address of north[^]*report/);
});

test("stages add up all producers", () => {
  const other = producer({
    stages: [
      stage("journal", { stored: counts(5), received: counts(5, 2) }),
      stage("store", { stored: counts(2), discrepancy: 3, losses: [LOSS] }),
    ],
  });
  const [journal, store] = flowStages([producer(), other]);
  expect(journal).toMatchObject({ name: "journal", values: 15, duplicates: 2, losses: 0 });
  expect(store).toMatchObject({ values: 12, difference: 3, losses: 1, lost: 3 });
  expect(flowStages([])).toEqual([]);
});

test("values that sources drop are counted, and without such sources there are no totals", () => {
  const dropped = [
    { reason: "late", values: 2 },
    { reason: "series limit", values: 1 },
  ];
  const source = { received: 10, accepted: 6, buffered: 1, dropped };
  expect(sourceTotals([producer(), producer({ source })])).toEqual({
    received: 10,
    accepted: 6,
    buffered: 1,
    dropped: 3,
  });
  expect(sourceTotals([producer()])).toBeNull();
});

test("gaps are rows of their producer, the latest first, within the range", () => {
  const gap = (producer: string, start: number, end: number) => ({
    producer,
    start,
    end,
    lost: 2,
    reason: "queue full",
  });
  const all = [gap("a", 10, 20), gap("b", 50, 60), gap("a", 30, 40), gap("a", 200, 300)];
  const rows = gapRows(all, [15, 100]);
  expect(rows.map(({ key, gaps }) => [key, gaps.length])).toEqual([
    ["b", 1],
    ["a", 2],
  ]);
  expect(describeGap(all[0]!)).toBe("2 samples or records lost: queue full");
  expect(describeGap({ ...all[0]!, lost: null })).toBe("unknown size: queue full");
  expect(describeLoss({ ...LOSS, gaps_of_unknown_size: 2 })).toBe(
    "3 samples or records, 2 gaps of unknown size: queue full",
  );
});
