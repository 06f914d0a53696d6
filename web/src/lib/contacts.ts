/** Contacts of alerts: whether they are reached, and what they got last. */

import { formatAge } from "./alerts";
import { getJson } from "./api";
import { plural } from "./serverStatus";
import * as time from "./time";
import { formatValue } from "./unit";

interface TimedTextJson {
  at_ns: number;
  text: string;
}

/** What a notification says of its alert. */
interface NotifiedJson {
  key: string;
  /** Empty if it is not known any more. */
  alert: string;
  state: string | null;
  note: string;
}

/** The last attempt at a notification, or an earlier one. */
interface DeliveryJson extends NotifiedJson {
  at_ns: number;
  outcome: "delivered" | "retry" | "rejected" | "given-up";
  /** Null of those before the start, as is the latency. */
  attempts: number | null;
  latency_ns: number | null;
  failover: string | null;
}

export interface ContactJson {
  name: string;
  kind: string;
  /** Host and port; null if they are in the file of a secret. */
  host: string | null;
  state: "ok" | "failing" | "unused";
  failing_since_ns: number | null;
  failover: string | null;
  pending: number;
  delivered_ns: number | null;
  last_error: TimedTextJson | null;
  /** The latest first. */
  deliveries: DeliveryJson[];
}

interface PendingJson extends NotifiedJson {
  contact: string;
  due_ns: number;
  attempts: number;
  has_failed_over: boolean;
}

/** Response of `/v1/contacts`. */
export interface ContactsJson {
  /** Another site notifies the contacts. */
  is_held: boolean;
  error: TimedTextJson | null;
  contacts: ContactJson[];
  pending: PendingJson[];
  undelivered: { contact: string; key: string; reason: string }[];
  warnings: TimedTextJson[];
}

export function fetchContacts(signal: AbortSignal): Promise<ContactsJson> {
  return getJson<ContactsJson>("/v1/contacts", {}, signal);
}

/** Those that are not reached first: the states are in the order of the alphabet. */
export function sortContacts(contacts: readonly ContactJson[]): ContactJson[] {
  return [...contacts].sort((a, b) => a.state.localeCompare(b.state));
}

/** `failing: 1, ok: 1, unused: 1, waiting notifications: 2, not delivered: 1`. */
export function describeContacts({ contacts, undelivered }: ContactsJson): string {
  const counts: Record<string, number> = {};
  for (const { state } of sortContacts(contacts)) counts[state] = (counts[state] ?? 0) + 1;
  counts["waiting notifications"] = contacts.reduce((sum, { pending }) => sum + pending, 0);
  counts["not delivered"] = undelivered.length;
  const shown = Object.entries(counts).filter(([, count]) => count > 0);
  return shown.map((of) => of.join(": ")).join(", ");
}

const formatTime = (ns: number) => time.formatDateTime(ns / 1e6);

/** The last warning, such as of a step without anybody on call; empty without one. */
export function describeWarning({ warnings }: ContactsJson): string {
  const last = warnings.at(-1);
  return last ? `${formatTime(last.at_ns)} ${last.text}` : "";
}

/** `webhook, hooks.example.org, failover sms, since 2026-11-26 12:00:00 (5 min ago)`. */
export function describeContact(contact: ContactJson, now: number): string {
  const { kind, host, failover, failing_since_ns: failing, delivered_ns: delivered } = contact;
  const at = failing ?? delivered;
  const when = failing === null ? "last reached" : "since";
  return [
    kind,
    host,
    failover && `failover ${failover}`,
    at === null
      ? "nothing was sent yet"
      : `${when} ${formatTime(at)} (${formatAge(at / 1e6, now)})`,
  ]
    .filter(Boolean)
    .join(", ");
}

/** `Deep, firing`; without a name the key of the notification. */
function describeNotified({ alert, key, state }: NotifiedJson): string {
  return (alert || key) + (state ? `, ${state}` : "");
}

/** A sentence, and the error that belongs to it. */
type ContactLine = readonly [string, string];

/** What waits for a contact, what it did not get, and its last deliveries, the latest first. */
export function contactLines(contact: ContactJson, overview: ContactsJson): ContactLine[] {
  const { name, failover, deliveries } = contact;
  const isOwn = (of: { contact: string }) => of.contact === name;
  const waiting = overview.pending.filter(isOwn).map((one): ContactLine => {
    const passed = one.has_failed_over ? `, ${failover} has it, too` : "";
    const attempts = plural(one.attempts, "attempt");
    const due = formatTime(one.due_ns);
    return [`waits: ${describeNotified(one)}, since ${due}, ${attempts}${passed}`, one.note];
  });
  const lost = overview.undelivered.filter(isOwn);
  const sent = deliveries.map((one): ContactLine => {
    const details = [
      one.outcome,
      (one.attempts ?? 1) > 1 && `attempt ${one.attempts}`,
      one.latency_ns !== null && `took ${formatValue(one.latency_ns, "ns")}`,
      one.failover && `${one.failover} receives it, too`,
    ];
    const text = details.filter(Boolean).join(", ");
    return [`${formatTime(one.at_ns)} ${describeNotified(one)}: ${text}`, one.note];
  });
  const hint = `No alert was sent yet. Test: topdeck contacts test ${name}.`;
  return [
    ...waiting,
    ...lost.map(({ key, reason }): ContactLine => [`not delivered: ${key}`, reason]),
    ...sent,
    ...(sent.length === 0 ? [[hint, ""] as const] : []),
  ];
}
