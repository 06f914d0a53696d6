/** What can stand where the caret is in a selector: a metric, a label's name, or a label's value. */

import type { Name } from "./api";

export interface Offer {
  /** The whole text when it is taken, and the caret in it. */
  text: string;
  caret: number;
  /** What is shown. */
  name: string;
  about: string;
  /** Whether something has to follow: the next offers come at once. */
  goesOn: boolean;
}

/** Offers at the most. */
const MOST = 50;

type Told = (path: string, parameters: Record<string, string>) => Promise<Record<string, unknown>>;

/** Where the caret is. */
export type Spot =
  | { at: "name"; written: string }
  | { at: "label"; metric: string; written: string; from: number }
  | { at: "value"; metric: string; label: string; written: string; from: number };

export function spot(text: string, caret: number): Spot | null {
  const before = text.slice(0, caret);
  const brace = before.indexOf("{");
  if (brace < 0) return /^[^(]*$/.test(before) ? { at: "name", written: before.trim() } : null;
  if (before.includes("}")) return null;
  const metric = before.slice(0, brace).trim();
  const inside = before.slice(brace + 1);
  const value = /(?:^|,)\s*([\w.:]+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)$/.exec(inside);
  if (value) return { at: "value", metric, label: value[1]!, written: value[2]!, from: caret - value[2]!.length };
  const label = /(?:^|,)\s*([\w.:]*)$/.exec(inside);
  return label ? { at: "label", metric, written: label[1]!, from: caret - label[1]!.length } : null;
}

export async function complete(text: string, caret: number, names: readonly Name[], kinds: readonly string[], told: Told): Promise<Offer[]> {
  const found = spot(text, caret);
  if (!found) return [];
  const rest = text.slice(caret);
  if (found.at === "name") {
    const word = found.written.toLowerCase();
    const fits = names.filter((one) => kinds.includes(one.kind) && one.name.toLowerCase().includes(word));
    // What begins so comes first.
    const rank = (one: Name) => (one.name.toLowerCase().startsWith(word) ? 0 : 1);
    fits.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
    return fits.slice(0, MOST).map((one) => ({
      text: one.name + rest.replace(/^[^{]*/, ""),
      caret: one.name.length,
      name: one.name,
      about: `${one.kind}${one.unit ? `, ${one.unit}` : ""}, ${one.series} series`,
      goesOn: false,
    }));
  }
  const parameters: Record<string, string> = { text: found.written, limit: String(MOST) };
  if (found.metric) parameters["selector"] = found.metric;
  const put = (name: string, about: string, goesOn: boolean, tail: string): Offer => {
    const head = text.slice(0, found.from) + name;
    return { text: head + tail + rest.replace(/^[\w.:]*"?/, ""), caret: head.length + tail.length, name, about, goesOn };
  };
  if (found.at === "label") {
    const answer = await told("/v1/labels", parameters);
    const labels = answer["labels"] as { name: string; values: number; series: number }[];
    return labels.map((one) => put(one.name, `${one.values} values`, true, '="'));
  }
  const answer = await told(`/v1/label/${encodeURIComponent(found.label)}/values`, parameters);
  const values = answer["values"] as { value: string; series: number }[];
  return values.map((one) => {
    const quoted = one.value.replace(/[\\"]/g, "\\$&");
    const end = rest.includes("}") ? '"' : '"}';
    return { ...put(quoted, `${one.series} series`, false, end), name: one.value };
  });
}
