/** The audit of losses: what each producer sent, and what each stage has. Times in milliseconds. */

import { getJson } from "./api";
import { plural, type Remote, type Subscriber } from "./serverStatus";
import type { SourceJson } from "./sources";
import { formatDuration } from "./time";
import { formatCount } from "./unit";

export interface AuditCounts {
  batches: number;
  samples: number;
  values: number;
  duplicates: number;
  undecodable: number;
  missing: number;
}

export interface AuditLoss {
  reason: string;
  gaps: number;
  samples_lost: number;
  gaps_of_unknown_size: number;
}

export interface AuditStage {
  /** `journal`, `store`, or `remote NAME`. */
  stage: string;
  received: AuditCounts;
  acknowledged: AuditCounts;
  stored: AuditCounts;
  losses: AuditLoss[];
  discrepancy: number;
  unknown_batches: number;
  reconciled: boolean;
  reason: string;
}

export interface AuditProducer {
  /** Null of producers that are not listed. */
  id: string | null;
  name: string;
  /** Values that a source of this process counts itself. */
  source: {
    received: number;
    accepted: number;
    buffered: number;
    dropped: { reason: string; values: number }[];
    /** The last input that was rejected; earlier servers have none. */
    last_problem?: { time_ns: number; text: string } | null;
  } | null;
  losses: AuditLoss[];
  stages: AuditStage[];
}

export interface AuditJson {
  start_time_ns: number;
  process_start_time_ns: number;
  position: number;
  reconciled: boolean;
  producers: AuditProducer[];
  warnings: string[];
}

interface StoredGapJson {
  start_ns: number;
  end_ns: number;
  producer: string | null;
  lost: number | null;
  reason: string;
}

interface FlowStatusJson {
  now_ns: number;
  store: { gaps: StoredGapJson[] } | null;
  journal: {
    end: number;
    subscribers: Subscriber[];
    gaps: { first: number; batches: number; reason: string }[];
  };
  remotes?: Remote[];
  sources?: SourceJson[];
}

/** Data of a producer that is known to be missing. */
export interface ProducerGap {
  producer: string;
  start: number;
  end: number;
  /** Samples or records; null if unknown. */
  lost: number | null;
  reason: string;
}

export interface AuditState {
  audit: AuditJson;
  now: number;
  /** End of the journal: the position of the next record. */
  end: number;
  subscribers: Subscriber[];
  remotes: Remote[];
  gaps: ProducerGap[];
  /** Gaps of the journal have positions, no times. */
  journalGaps: { first: number; batches: number; reason: string }[];
}

/** Subscribers of remotes have a prefix of earlier versions in the journal. */
const REMOTE_PREFIX = /^site /;

/** What producers without an entry of their own are called. */
export const OTHERS = "producers that are not listed";

export const producerName = ({ name, id }: Pick<AuditProducer, "name" | "id">): string =>
  name || id || OTHERS;

export function fetchAudit(signal: AbortSignal): Promise<AuditJson> {
  return getJson<AuditJson>("/v1/audit", {}, signal);
}

export async function fetchAuditState(signal: AbortSignal): Promise<AuditState> {
  const [audit, status] = await Promise.all([
    fetchAudit(signal),
    getJson<FlowStatusJson>("/v1/status", {}, signal),
  ]);
  const names = new Map(audit.producers.map((one) => [one.id, producerName(one)]));
  const nameOf = (id: string | null) => names.get(id) ?? id ?? "unknown producer";
  return {
    audit,
    now: status.now_ns / 1e6,
    end: status.journal.end,
    subscribers: status.journal.subscribers.map((one) => ({
      ...one,
      name: one.name.replace(REMOTE_PREFIX, "remote "),
    })),
    remotes: status.remotes ?? [],
    journalGaps: status.journal.gaps,
    gaps: (status.store?.gaps ?? []).map(({ start_ns, end_ns, producer, lost, reason }) => ({
      producer: nameOf(producer),
      start: start_ns / 1e6,
      end: end_ns / 1e6,
      lost,
      reason,
    })),
  };
}

/** `10 samples or records, 1 gap of unknown size: the queue was full`. */
export function describeLoss({ samples_lost, gaps_of_unknown_size, reason }: AuditLoss): string {
  const unknown = `${plural(gaps_of_unknown_size, "gap")} of unknown size`;
  const lost = `${formatCount(samples_lost)} samples or records`;
  return `${lost}${gaps_of_unknown_size > 0 ? `, ${unknown}` : ""}: ${reason}`;
}

/** What was last wrong with a sender: input that was rejected, or data that was lost. */
export function lastProblem(producer: AuditProducer, now: number): string {
  const rejected = producer.source?.last_problem;
  if (rejected) {
    const ago = formatDuration(Math.max(now - rejected.time_ns / 1e6, 0));
    return `${ago} ago: ${rejected.text}`;
  }
  const dropped = producer.source?.dropped.find(({ values }) => values > 0);
  if (dropped) return `${formatCount(dropped.values)} values dropped: ${dropped.reason}`;
  const loss = producer.losses[0] ?? producer.stages.flatMap((stage) => stage.losses)[0];
  return loss ? describeLoss(loss) : "";
}

/** A stage of the data flow, with the counts of all producers together. */
export interface FlowStage {
  name: string;
  values: number;
  batches: number;
  /** Values of the stage before that are not in this one: on the way, lost, or unexplained. */
  difference: number;
  duplicates: number;
  losses: number;
  /** Lost samples or records, as far as known. */
  lost: number;
  /** Losses whose size is unknown. */
  isLostUnknown: boolean;
  isReconciled: boolean;
}

const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);

/** Stages of all producers, in the order of the flow. */
export function flowStages(producers: readonly AuditProducer[]): FlowStage[] {
  const names = [...new Set(producers.flatMap(({ stages }) => stages.map(({ stage }) => stage)))];
  return names.map((name) => {
    const all = producers.flatMap(({ stages }) => stages.filter(({ stage }) => stage === name));
    const losses = all.flatMap((one) => one.losses);
    return {
      name,
      values: sum(all.map(({ stored }) => stored.values)),
      batches: sum(all.map(({ stored }) => stored.batches)),
      difference: sum(all.map(({ discrepancy }) => discrepancy)),
      duplicates: sum(all.map(({ received }) => received.duplicates)),
      losses: losses.length,
      lost: sum(losses.map(({ samples_lost }) => samples_lost)),
      isLostUnknown:
        losses.some(({ gaps_of_unknown_size }) => gaps_of_unknown_size > 0) ||
        all.some(({ unknown_batches }) => unknown_batches > 0),
      isReconciled: all.every(({ reconciled }) => reconciled),
    };
  });
}

/** Values at the sources of this process, before the journal. */
export interface SourceTotals {
  received: number;
  accepted: number;
  buffered: number;
  dropped: number;
}

/** Null if no source counts them. */
export function sourceTotals(producers: readonly AuditProducer[]): SourceTotals | null {
  const sources = producers.flatMap(({ source }) => (source ? [source] : []));
  if (sources.length === 0) return null;
  return {
    received: sum(sources.map(({ received }) => received)),
    accepted: sum(sources.map(({ accepted }) => accepted)),
    buffered: sum(sources.map(({ buffered }) => buffered)),
    dropped: sum(sources.flatMap(({ dropped }) => dropped.map(({ values }) => values))),
  };
}

/** A difference that has no reason, and what to do. */
export interface Discrepancy {
  producer: string;
  stage: string;
  reason: string;
  action: string;
}

export function discrepancies(producers: readonly AuditProducer[]): Discrepancy[] {
  return producers.flatMap((producer) =>
    producer.stages
      .filter(({ reconciled }) => !reconciled)
      .map(({ stage, reason }) => ({
        producer: producerName(producer),
        stage,
        reason,
        action: actionFor(stage),
      })),
  );
}

function actionFor(stage: string): string {
  const report =
    "This is a defect of topdeck. Keep the data directory and the log, save the output of " +
    "topdeck audit --json, and report it with them.";
  const remote = /^remote (.*)$/s.exec(stage)?.[1];
  return remote === undefined
    ? report
    : `Run topdeck audit --server with the address of ${remote}: it says what arrived. ${report}`;
}

export type AuditVerdict = "complete" | "losses" | "unreconciled";

/** Green only if nothing is lost. */
export function auditVerdict({ audit, gaps, journalGaps }: AuditState): AuditVerdict {
  if (!audit.reconciled) return "unreconciled";
  const isLost = (one: AuditProducer) =>
    one.losses.length > 0 ||
    (one.source?.dropped ?? []).some(({ values }) => values > 0) ||
    one.stages.some((stage) => stage.losses.length > 0 || stage.unknown_batches > 0);
  const isComplete =
    !audit.producers.some(isLost) &&
    audit.warnings.length === 0 &&
    gaps.length === 0 &&
    journalGaps.length === 0;
  return isComplete ? "complete" : "losses";
}

/** Rows of gaps by producer, those with the latest gap first. */
export function gapRows(
  gaps: readonly ProducerGap[],
  [from, to]: readonly [number, number],
): { key: string; gaps: ProducerGap[] }[] {
  const rows = new Map<string, ProducerGap[]>();
  for (const gap of gaps) {
    if (gap.end < from || gap.start > to) continue;
    rows.set(gap.producer, [...(rows.get(gap.producer) ?? []), gap]);
  }
  const latest = (all: readonly ProducerGap[]) => Math.max(...all.map(({ end }) => end));
  return [...rows]
    .map(([key, all]) => ({ key, gaps: all.sort((a, b) => a.start - b.start) }))
    .sort((a, b) => latest(b.gaps) - latest(a.gaps) || (a.key < b.key ? -1 : 1));
}

/** `12 samples or records lost: the queue was full`. */
export function describeGap({ lost, reason }: ProducerGap): string {
  const size = lost === null ? "unknown size" : `${formatCount(lost)} samples or records lost`;
  return `${size}: ${reason}`;
}
