/**
 * The URL fragment holds the whole view, so that a link is a view. It follows `#`: it is not
 * sent to the server.
 */

import { migrateKinds, migrateSetting, migrateView } from "./migration";
import { alignRange, rangeBetween, resolveRange, type TimeRange } from "./time";

/** The view of an empty fragment, and that of settings without a view. */
const DEFAULT_VIEW = "overview";
const SETTINGS_VIEW = "explore";

/**
 * Marks links with current names. A link without it is of an earlier version, or was typed: its
 * names are migrated. A name that was typed into a field is never changed; of a link with the mark
 * only the kinds of series are migrated, which were renamed later.
 */
const VERSION = ["v", "2"] as const;

/** The name of a view, a row of `views.ts`, and its settings. */
export interface Route {
  view: string;
  settings: Record<string, string>;
}

/** Parses a fragment, also one of an earlier version. */
export function read(hash: string): Route {
  // A selector that was typed into the address may contain a question mark.
  const [, path = "", query] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash)!;
  const view = migrateView(path) || (query ? SETTINGS_VIEW : DEFAULT_VIEW);
  const search = new URLSearchParams(query);
  const isCurrent = search.get(VERSION[0]) === VERSION[1];
  search.delete(VERSION[0]);
  if (isCurrent) {
    const settings = [...search].map(([name, value]) => [name, migrateKinds(value)]);
    return { view, settings: Object.fromEntries(settings) };
  }
  const hasTime = search.get("language") === "promql";
  const settings = [...search].map(([name, value]) => migrateSetting(name, value, hasTime));
  return { view, settings: Object.fromEntries(settings) };
}

/** The fragment of a route. Empty settings are left out; the order is always the same. */
export function write({ view, settings }: Route): string {
  const search = new URLSearchParams();
  for (const name of Object.keys(settings).sort()) {
    const value = settings[name];
    if (value) search.set(name, value);
  }
  if (search.size > 0) search.set(...VERSION);
  // Characters of selectors that a fragment may contain stay readable.
  const query = search
    .toString()
    .replaceAll("%7B", "{")
    .replaceAll("%7D", "}")
    .replaceAll("%2C", ",")
    .replaceAll("%3A", ":");
  return query ? `#/${view}?${query}` : `#/${view}`;
}

/** A metric in Explore, with a threshold such as `250ms`, in a range. */
export function exploreRange(
  selector: string,
  threshold: string,
  from: number,
  to: number,
): string {
  return write({
    view: "explore",
    settings: { selector, threshold, ...rangeBetween(from, to) },
  });
}

/** Ends of a relative range are rounded outwards to this, in milliseconds, as its columns are. */
const FIXED_STEP = 10e3;

/**
 * A route for somebody else, who opens it later: times that are relative to now are fixed.
 * `range` is that of the view, which may have a default.
 */
export function fixRange({ view, settings }: Route, range: TimeRange, now: number): Route {
  const fixed = { ...settings };
  const { from_b: from = range.from, to_b: to = range.to } = settings;
  for (const [names, of] of [
    [["from_b", "to_b"], { from, to }],
    [["from", "to"], range],
  ] as const) {
    const isShown = names[0] === "from" || names.some((name) => settings[name]);
    const resolved = isShown ? resolveRange(of, now) : null;
    if (!resolved) continue;
    const isRelative = [of.from, of.to].some((text) => /^(-|now)/.test(text.trim()));
    const ends = rangeBetween(...(isRelative ? alignRange(...resolved, FIXED_STEP) : resolved));
    [fixed[names[0]], fixed[names[1]]] = [ends.from, ends.to];
  }
  return { view, settings: fixed };
}
