/** Series that vanished, and what replaced them. */

import { getJson, sendRequest } from "./api";

/** A change of series. Times are in milliseconds. */
export interface SeriesSetChange {
  id: string;
  at: number;
  source: string;
  text: string;
  acceptance: { by: string; note: string } | null;
}

interface ChangeJson {
  id: string;
  at_ns: number;
  source: string;
  text: string;
  acceptance: { at_ns: number; by: string; note: string } | null;
}

/** Changes of the last week that nobody accepted, the latest first. */
export async function fetchOpenChanges(signal: AbortSignal): Promise<SeriesSetChange[]> {
  const { changes } = await getJson<{ changes: ChangeJson[] }>(
    "/v1/changes",
    { open: "true" },
    signal,
  );
  return changes.map(toChange).reverse();
}

export async function acceptChange(id: string, note: string): Promise<SeriesSetChange> {
  const path = `/v1/changes/${id}/accept`;
  const { response } = await sendRequest<{ change: ChangeJson }>("POST", path, { body: { note } });
  return toChange(response.change);
}

function toChange({ id, at_ns, source, text, acceptance }: ChangeJson): SeriesSetChange {
  return { id, at: at_ns / 1e6, source, text, acceptance };
}
