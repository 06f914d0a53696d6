/** Requests that acknowledge and clear alerts, and what is common to those that silence them. */

import { ApiError, sendRequest } from "./api";
import { PersistedValue } from "./persisted";

/** Who acknowledges and silences, until it is changed: a browser has one user. */
export const author = new PersistedValue("localStorage", "topdeck-author");

/** Durations that are offered: the request's, and the text. */
export const DURATIONS = [
  ["1h", "1 hour"],
  ["4h", "4 hours"],
  ["1d", "1 day"],
] as const;

/** The server names the token if there is no author. */
export interface AcknowledgementDraft {
  fingerprint: string;
  for: string;
  author: string;
  note: string;
}

export async function acknowledge(draft: AcknowledgementDraft): Promise<void> {
  await sendRequest("POST", "/v1/alerts/acknowledge", { body: draft });
}

export async function unacknowledge(fingerprint: string): Promise<void> {
  await sendRequest("POST", "/v1/alerts/unacknowledge", { body: { fingerprint } });
}

/** Ends an alert by hand; it begins anew if its condition holds. */
export async function clearAlert(
  draft: Pick<AcknowledgementDraft, "fingerprint" | "author" | "note">,
): Promise<void> {
  await sendRequest("POST", "/v1/alerts/clear", { body: draft });
}

/** Why a change was rejected, after `cannot acknowledge the alert: `. */
export function describeRejection(error: unknown): string {
  const isScope = error instanceof ApiError && [401, 403].includes(error.status);
  if (isScope && /scope/.test(error.message)) {
    return (
      "this page's token lacks the scope alerts; open the page in a new tab, and sign in " +
      "with a token that has it"
    );
  }
  return error instanceof Error ? error.message : String(error);
}
