/**
 * The URL fragment holds the whole view, so that a link is a view. It follows `#`: the server never
 * sees it.
 */

export const VIEWS = [
  "explore",
  "spectrum",
  "compare",
  "host",
  "dashboards",
  "sources",
  "status",
] as const;
export type ViewName = (typeof VIEWS)[number];

/** Names of views and settings in links of earlier versions. */
const RENAMED_VIEWS: ReadonlyMap<string, ViewName> = new Map([["boards", "dashboards"]]);
const RENAMED_SETTINGS: ReadonlyMap<string, string> = new Map([["board", "dashboard"]]);

/** A view and its settings. */
export interface Route {
  view: ViewName;
  settings: Record<string, string>;
}

/** Parses a fragment, also one of an earlier version. An unknown view is Explore. */
export function read(hash: string): Route {
  // A selector that was typed into the address may contain a question mark.
  const [, path = "", query] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash)!;
  const view = VIEWS.find((view) => view === path) ?? RENAMED_VIEWS.get(path) ?? "explore";
  const settings = [...new URLSearchParams(query)].map(
    ([name, value]) => [RENAMED_SETTINGS.get(name) ?? name, value] as const,
  );
  return { view, settings: Object.fromEntries(settings) };
}

/** The fragment of a route. Empty settings are left out; the order is always the same. */
export function write({ view, settings }: Route): string {
  const search = new URLSearchParams();
  for (const name of Object.keys(settings).sort()) {
    const value = settings[name];
    if (value) search.set(name, value);
  }
  // Characters of selectors that a fragment may contain stay readable.
  const query = search
    .toString()
    .replaceAll("%7B", "{")
    .replaceAll("%7D", "}")
    .replaceAll("%2C", ",")
    .replaceAll("%3A", ":");
  return query ? `#/${view}?${query}` : `#/${view}`;
}
