/** The server's state from `/v1/status`, and what needs action. */

import type { SourceJson, TargetJson } from "./sources";
import * as time from "./time";
import { formatCount, formatShare, formatValue } from "./unit";

export interface Subscriber {
  name: string;
  position: number;
  lag: number;
  committed_ns: number | null;
  pins_records: boolean;
  damaged: boolean;
}

export interface Remote {
  name: string;
  url: string;
  lag: number;
  acknowledged_ns: number | null;
  last_error: { at_ns: number; reason: string } | null;
  message: string | null;
}

/** Damage or a skipped input that an operator acknowledged. */
export interface DamageAcknowledgement {
  location: string;
  records: number;
  found_ns: number;
  acknowledged_ns: number;
  note: string;
}

export interface StatusJson {
  version: string;
  now_ns: number;
  start_time_ns: number;
  store: {
    series: number;
    head_rows: number;
    head_bytes: number;
    parts: number;
    part_rows: number;
    part_bytes: number;
    gaps: unknown[];
    warnings: string[];
  } | null;
  journal: {
    segments: number;
    segment_bytes: number;
    end: number;
    full_reason: string | null;
    failed: boolean;
    subscribers: Subscriber[];
    gaps: { batches: number; reason: string }[];
  };
  /** Absent from a server of an earlier version. */
  data?: { dir: string; free_bytes: number | null; total_bytes: number | null };
  threads: { name: string; down: number; panics: number; last_panic: string | null }[];
  quarantined: { input: string; reason: string; acknowledged?: boolean }[];
  damage: { location: string; records: number; remedy: string; acknowledged?: boolean }[];
  /** Absent from a server of an earlier version. */
  acknowledged_damage?: DamageAcknowledgement[];
  /** Absent from a server of an earlier version. */
  sources?: SourceJson[];
  /** Absent from a server without the role. */
  remotes?: Remote[];
  orphaned_subscribers?: { name: string; lag: number }[];
  targets?: TargetJson[];
  listeners?: { format: string; rejected_lines: number }[];
  host_warnings?: string[];
  tokens_error?: string | null;
  /** Absent from a server without the role. */
  alerts?: { problems?: string[] };
}

/** A number of the status page, what it is, and what belongs to it. */
export interface StatusTile {
  name: string;
  value: string;
  detail: string;
  /** In plain words. */
  meaning: string;
}

export function statusTiles({
  store,
  journal,
  data,
  now_ns,
  start_time_ns,
  version,
}: StatusJson): StatusTile[] {
  const tiles = [
    {
      name: "uptime",
      value: time.formatDuration((now_ns - start_time_ns) / 1e6),
      detail: `version ${version}`,
      meaning: "",
    },
  ];
  if (data && data.free_bytes !== null && data.total_bytes !== null) {
    const { free_bytes: free, total_bytes: total } = data;
    tiles.push({
      name: "disk space free",
      value: formatValue(free, "B"),
      detail: `${formatShare(total > 0 ? free / total : 0)} of ${formatValue(total, "B")}`,
      meaning: `data in ${data.dir}`,
    });
  }
  if (store) {
    tiles.push(
      {
        name: "series",
        value: formatCount(store.series),
        detail: "",
        meaning: "a metric with its labels",
      },
      {
        name: "stored",
        value: formatValue(store.part_bytes, "B"),
        detail: `${plural(store.part_rows, "row")} in ${plural(store.parts, "file")}`,
        meaning: "a row is a sample: a number or a histogram",
      },
      {
        name: "in memory",
        value: formatValue(store.head_bytes, "B"),
        detail: plural(store.head_rows, "row"),
        meaning: "not yet in a file; it is in the journal, too",
      },
    );
  }
  tiles.push({
    name: "journal",
    value: formatValue(journal.segment_bytes, "B"),
    detail: plural(journal.segments, "file"),
    meaning: "commit log: data before it is stored; files are allocated in advance",
  });
  return tiles;
}

/** Something that an operator should do, the most urgent first. */
export interface Problem {
  what: string;
  action: string;
}

/** A count and its noun, as in `1 part`, `2 parts`, `2 batches`. */
export function plural(count: number, noun: string): string {
  const ending = count === 1 ? "" : noun.endsWith("ch") ? "es" : "s";
  return `${formatCount(count)} ${noun}${ending}`;
}

/** What needs action: first what loses or rejects data, then what is missing. */
export function findProblems(status: StatusJson): Problem[] {
  return [
    ...storageProblems(status),
    ...processProblems(status),
    ...ruleProblems(status),
    ...sourceProblems(status),
  ];
}

function ruleProblems({ alerts }: StatusJson): Problem[] {
  return (alerts?.problems ?? []).map((problem) => ({
    what: `Problem of a rule file: ${problem}.`,
    action: "Repair the file, and check it with topdeck rules check FILE. SIGHUP reads it again.",
  }));
}

function storageProblems({ journal, damage }: StatusJson): Problem[] {
  const problems: Problem[] = [];
  if (journal.failed) {
    problems.push({
      what: "The journal stopped after a disk error: nothing is acknowledged.",
      action: "Repair the disk, then restart topdeck. The log has the error.",
    });
  }
  if (journal.full_reason) {
    problems.push({
      what: `New data is rejected: ${journal.full_reason}.`,
      action: "Free disk space, or raise the limit that is named. Senders retry meanwhile.",
    });
  }
  for (const { location, records, remedy } of damage.filter((one) => !one.acknowledged)) {
    problems.push({
      what: `Damaged: ${location}, ${plural(records, "record")} lost.`,
      action: `${capitalise(remedy)}.`,
    });
  }
  for (const { name } of journal.subscribers.filter((one) => one.damaged)) {
    problems.push({
      what: `One copy of the checkpoint of subscriber ${name} is damaged.`,
      action: "Check the disk; the other copy is in use.",
    });
  }
  if (journal.gaps.length > 0) {
    const lost = journal.gaps.reduce((sum, gap) => sum + gap.batches, 0);
    problems.push({
      what: `The journal has gaps: ${plural(lost, "batch")} lost.`,
      action: `Reason: ${journal.gaps[0]!.reason}. Loss audit names the data.`,
    });
  }
  return problems;
}

function processProblems({ threads, quarantined, tokens_error }: StatusJson): Problem[] {
  const down = threads.filter((one) => one.down > 0);
  return [
    ...down.map(({ name, panics, last_panic }) => ({
      what: `Thread ${name} is down after ${plural(panics, "panic")}.`,
      action: `Report the panic, which is a bug: ${last_panic ?? "see the log"}.`,
    })),
    ...quarantined
      .filter((one) => !one.acknowledged)
      .map(({ input, reason }) => ({
        what: `${capitalise(input)} is skipped: ${reason}.`,
        action: "Report the panic, which is a bug; the input stays on disk.",
      })),
    ...(tokens_error
      ? [
          {
            what: `Tokens are not reloaded: ${tokens_error}.`,
            action: "Repair the file; the previous tokens stay in force.",
          },
        ]
      : []),
  ];
}

function sourceProblems(status: StatusJson): Problem[] {
  const now = status.now_ns / 1e6;
  const since = (ns: number) => time.formatDuration(Math.max(now - ns / 1e6, 0));
  const isDown = (ns: number | null) =>
    ns === null ? "is down" : `has been down for ${since(ns)}`;
  const down = (status.targets ?? []).filter((one) => one.state === "down");
  const absent = (status.sources ?? []).filter((one) => one.state === "absent");
  const failing = (status.remotes ?? []).filter((one) => one.last_error !== null);
  return [
    ...down.map(({ kind, name, since_ns, last_error }) => ({
      what: `${capitalise(kind)} ${name} ${isDown(since_ns)}.`,
      action: last_error ? `Reason: ${last_error.reason}.` : "See Sources.",
    })),
    ...absent.map(({ name, last_ns, interval_ns }) => ({
      what: `Source ${name} has sent nothing for ${since(last_ns)}.`,
      action:
        (interval_ns === null
          ? ""
          : `It usually sends every ${time.formatDuration(interval_ns / 1e6)}. `) +
        "Check whether the sender runs and reaches this server.",
    })),
    ...failing.map(({ name, url, lag, last_error }) => ({
      what: `Remote ${name} does not accept data; ${plural(lag, "record")} wait for it.`,
      action: `Reason: ${last_error!.reason} (${url}).`,
    })),
  ];
}

/** What is worth knowing, and loses nothing. */
export function findNotes(status: StatusJson): string[] {
  const orphans = (status.orphaned_subscribers ?? []).map(
    ({ name, lag }) =>
      `Remote ${name} is no longer configured, and the journal retains ` +
      `${plural(lag, "record")} for it: remove its subscriber.`,
  );
  const rejected = (status.listeners ?? [])
    .filter((one) => one.rejected_lines > 0)
    .map((one) => `${one.format}: ${plural(one.rejected_lines, "line")} rejected, see Sources.`);
  return [
    ...orphans,
    ...rejected,
    ...(status.host_warnings ?? []),
    ...(status.store?.warnings ?? []),
  ];
}

/** Acknowledged damage, the latest first. */
export function acknowledgements({ acknowledged_damage }: StatusJson): DamageAcknowledgement[] {
  return [...(acknowledged_damage ?? [])].sort((a, b) => b.acknowledged_ns - a.acknowledged_ns);
}

function capitalise(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
