/** Maintenance windows: a form of the page, as a request for a silence. */

import { sendRequest } from "./api";
import { readMatchers } from "./silences";
import type { TimeInterval } from "./timeInterval";

/** Days of the week as the server names them, from Monday. */
export const WEEKDAYS = [
  "monday",
  "tuesday",
  "wednesday",
  "thursday",
  "friday",
  "saturday",
  "sunday",
] as const;

/** Values of the label severity, from the worst. An alert without the label has severity 2. */
const SEVERITIES = ["1|critical|page", "2|error|high|", "3|warning|warn", "4|info"] as const;

/** Severities from which on alerts are silenced, and their text. */
export const SEVERITY_CHOICES = [
  [1, "all"],
  [2, "2 and lesser"],
  [3, "3 and lesser"],
  [4, "4 and 5"],
] as const;

export interface MaintenanceDraft {
  /** One a line. */
  matchers: string;
  /** The worst severity that is silenced. */
  severity: number;
  isRecurring: boolean;
  /** Local times of a single window, as `2026-11-26T20:00`. */
  start: string;
  end: string;
  /** Of a recurring one: days on which it begins, none for each day, and local times of day. */
  days: readonly string[];
  from: string;
  to: string;
  author: string;
  comment: string;
}

export interface MaintenanceRequest {
  matchers: string[];
  starts_at?: string;
  ends_at?: string;
  time_intervals?: TimeInterval[];
  author: string;
  comment: string;
}

/** The request of a form, or what is wrong with the form. Times of day are in a time zone. */
export function maintenanceRequest(
  draft: MaintenanceDraft,
  zone: string,
): MaintenanceRequest | string {
  const matchers = [...readMatchers(draft.matchers), ...severityMatchers(draft.severity)];
  if (matchers.length === 0) return "add a matcher, or choose a severity";
  const { author, comment } = draft;
  const common = { matchers, author: author.trim(), comment: comment.trim() };
  if (draft.isRecurring) {
    if (draft.from === "" || draft.to === "") return "both times of day are needed";
    return { ...common, time_intervals: dailyIntervals(draft, zone) };
  }
  const [start, end] = [new Date(draft.start), new Date(draft.end)];
  if (Number.isNaN(start.getTime()) || Number.isNaN(end.getTime())) return "both times are needed";
  if (end <= start) return "the end is not after the start";
  return { ...common, starts_at: start.toISOString(), ends_at: end.toISOString() };
}

export async function createMaintenance(request: MaintenanceRequest): Promise<void> {
  await sendRequest("POST", "/v1/silences", { body: request });
}

/** The matcher that leaves out alerts that are worse. */
function severityMatchers(severity: number): string[] {
  const worse = SEVERITIES.slice(0, severity - 1);
  return worse.length === 0 ? [] : [`severity!~"${worse.join("|")}"`];
}

/** A window that ends on the next day is two intervals: those of the server end at midnight. */
function dailyIntervals({ days, from, to }: MaintenanceDraft, zone: string): TimeInterval[] {
  const interval = (start_time: string, end_time: string, weekdays: readonly string[]) => ({
    times: [{ start_time, end_time }],
    ...(weekdays.length > 0 ? { weekdays: [...weekdays] } : {}),
    location: zone,
  });
  if (from < to) return [interval(from, to, days)];
  const next = days.map((day) => WEEKDAYS[(WEEKDAYS.indexOf(day as never) + 1) % 7]!);
  const evening = interval(from, "24:00", days);
  return to === "00:00" ? [evening] : [evening, interval("00:00", to, next)];
}
