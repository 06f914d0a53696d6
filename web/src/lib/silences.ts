/** Silences and maintenance windows. Times are in milliseconds. */

import { getJson, sendRequest } from "./api";
import { quoted } from "./selector";
import * as time from "./time";
import { describeInterval, type TimeInterval } from "./timeInterval";

export interface Silence {
  id: string;
  state: "active" | "pending" | "expired";
  matchers: string[];
  start: number;
  /** Null of a maintenance window without an end. */
  end: number | null;
  /** A maintenance window is active in its time intervals only. */
  intervals: string[];
  author: string;
  comment: string;
}

interface SilenceJson {
  id: string;
  state: Silence["state"];
  matchers: string[];
  starts_ns: number;
  ends_ns: number | null;
  time_intervals: TimeInterval[];
  author: string;
  comment: string;
}

export interface SilenceDraft {
  matchers: string[];
  for: string;
  author: string;
  comment: string;
}

/** Active and pending silences: active ones by end, then pending ones by start. */
export async function fetchSilences(signal: AbortSignal): Promise<Silence[]> {
  const { silences } = await getJson<{ silences: SilenceJson[] }>("/v1/silences", {}, signal);
  return silences.filter(({ state }) => state !== "expired").map(toSilence);
}

export async function createSilence(draft: SilenceDraft): Promise<void> {
  await sendRequest("POST", "/v1/silences", { body: draft });
}

export async function endSilence(id: string): Promise<void> {
  await sendRequest("DELETE", `/v1/silences/${encodeURIComponent(id)}`);
}

export function toSilence(json: SilenceJson): Silence {
  const { id, state, matchers, starts_ns, ends_ns, time_intervals, author, comment } = json;
  return {
    id,
    state,
    matchers,
    start: starts_ns / 1e6,
    end: ends_ns === null ? null : ends_ns / 1e6,
    intervals: time_intervals.map(describeInterval),
    author,
    comment,
  };
}

/** Matchers of exactly these labels, one a line. */
export function matcherLines(labels: Readonly<Record<string, string>>): string {
  const names = Object.keys(labels).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  return names.map((name) => matcher(name, labels[name]!)).join("\n");
}

function rank(name: string): number {
  return name === "alertname" ? 0 : 1;
}

function matcher(name: string, value: string): string {
  const label = /^[a-zA-Z_]\w*$/.test(name) ? name : quoted(name);
  // Other escapes of JSON are no escapes of a matcher.
  const escaped = value.replace(/["\\]/g, "\\$&").replace(/\n/g, "\\n");
  return `${label}="${escaped}"`;
}

/** Matchers of a text, one a line; empty lines are left out. */
export function readMatchers(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** `by ann until 2026-11-26 20:00:00 (1 h 59 min left): disk is replaced`. */
export function describeSilence(
  { author, start, end, state, intervals, comment }: Omit<Silence, "id" | "matchers">,
  now: number,
): string {
  const from = state === "pending" && start > now ? ` from ${time.formatDateTime(start)}` : "";
  const until = end === null ? "" : ` ${describeEnd(end, now)}`;
  const recurring = intervals.length > 0 ? `, ${intervals.join("; ")}` : "";
  return `by ${author || "somebody"}${from}${until}${recurring}${comment ? `: ${comment}` : ""}`;
}

/** `until 2026-11-26 20:00:00 (1 h 59 min left)`. */
export function describeEnd(end: number, now: number): string {
  // Whole minutes: the text stands still, and the clocks may differ by a second.
  const left = Math.max(Math.round((end - now) / 60e3), 1) * 60e3;
  const text = end > now ? ` (${time.formatDuration(left)} left)` : "";
  return `until ${time.formatDateTime(end)}${text}`;
}
