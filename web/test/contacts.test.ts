import { expect, test } from "vitest";

import {
  contactLines,
  describeContact,
  describeContacts,
  sortContacts,
  type ContactJson,
  type ContactsJson,
} from "../src/lib/contacts";
import { formatDateTime } from "../src/lib/time";

const NOW = Date.UTC(2026, 10, 26, 12);

function contact(changes: Partial<ContactJson>): ContactJson {
  return {
    name: "pager",
    kind: "pagerduty",
    host: "events.pagerduty.com",
    state: "ok",
    failing_since_ns: null,
    failover: null,
    pending: 0,
    delivered_ns: (NOW - 60e3) * 1e6,
    last_error: null,
    deliveries: [],
    ...changes,
  };
}

function overview(contacts: ContactJson[], undelivered = 0): ContactsJson {
  const one = { contact: "pager", key: "a/1", reason: "400" };
  const lost = Array.from({ length: undelivered }, () => one);
  return { is_held: false, error: null, contacts, pending: [], undelivered: lost, warnings: [] };
}

const failing = contact({
  name: "sms",
  state: "failing",
  failing_since_ns: (NOW - 300e3) * 1e6,
  pending: 2,
});
const unused = contact({ name: "chat", state: "unused", delivered_ns: null });

test("the contacts are one sentence, and those that are not reached are first", () => {
  expect(describeContacts(overview([contact({})]))).toBe("ok: 1");
  expect(describeContacts(overview([contact({}), unused, failing], 1))).toBe(
    "failing: 1, ok: 1, unused: 1, waiting notifications: 2, not delivered: 1",
  );
  const names = sortContacts([contact({}), unused, failing]).map(({ name }) => name);
  expect(names).toEqual(["sms", "pager", "chat"]);
});

test("a contact says since when it fails, or when it was reached", () => {
  const at = (ms: number) => formatDateTime(NOW - ms);
  const host = "pagerduty, events.pagerduty.com";
  expect(describeContact(contact({}), NOW)).toBe(`${host}, last reached ${at(60e3)} (1 min ago)`);
  expect(describeContact({ ...failing, failover: "fax" }, NOW)).toBe(
    `${host}, failover fax, since ${at(300e3)} (5 min ago)`,
  );
  expect(describeContact({ ...unused, host: null }, NOW)).toBe("pagerduty, nothing was sent yet");
});

test("the lines of a contact say what waits, what was lost, and what was sent", () => {
  const at = formatDateTime(NOW);
  const notified = { key: "a1b2/3", alert: "Deep", state: "firing", note: "500" };
  const sent = {
    ...notified,
    at_ns: NOW * 1e6,
    outcome: "retry",
    attempts: 2,
    latency_ns: 5e6,
    failover: "sms",
  } as const;
  const old = { ...sent, alert: "", state: null, attempts: null, latency_ns: null, failover: null };
  const pager = contact({
    failover: "sms",
    deliveries: [sent, { ...old, outcome: "delivered", note: "" }],
  });
  const all = overview([pager], 1);
  const times = { due_ns: NOW * 1e6 };
  const waits = { ...notified, ...times, contact: "pager", attempts: 1, has_failed_over: true };
  all.pending = [waits, { ...waits, contact: "sms" }];
  expect(contactLines(pager, all)).toEqual([
    [`waits: Deep, firing, since ${at}, 1 attempt, sms has it, too`, "500"],
    ["not delivered: a/1", "400"],
    [`${at} Deep, firing: retry, attempt 2, took 5 ms, sms receives it, too`, "500"],
    [`${at} a1b2/3: delivered`, ""],
  ]);
  expect(contactLines(unused, overview([unused]))).toEqual([
    ["No alert was sent yet. Test: topdeck contacts test chat.", ""],
  ]);
});
