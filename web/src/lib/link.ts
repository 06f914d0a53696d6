/** The address holds the whole view, so that a link is a view. It stands after `#`: the server never sees it. */

export const VIEWS = [
  "explore",
  "spectrum",
  "compare",
  "host",
  "boards",
  "sources",
  "status",
] as const;
export type ViewName = (typeof VIEWS)[number];

/** What is looked at: a view and its settings. */
export interface Place {
  view: ViewName;
  settings: Record<string, string>;
}

/** Reads what stands after `#`. What is not known is Explore. */
export function read(hash: string): Place {
  // A selector that was written by hand may have a question mark in it.
  const [, path, query] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash)!;
  const view = VIEWS.find((view) => view === path) ?? "explore";
  return { view, settings: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a place. Settings that are empty are left out; their order is always the same. */
export function write({ view, settings }: Place): string {
  const search = new URLSearchParams();
  for (const name of Object.keys(settings).sort()) {
    const value = settings[name];
    if (value) search.set(name, value);
  }
  // What people read in selectors may stay as it is.
  const query = search
    .toString()
    .replaceAll("%7B", "{")
    .replaceAll("%7D", "}")
    .replaceAll("%2C", ",")
    .replaceAll("%3A", ":");
  return query ? `#/${view}?${query}` : `#/${view}`;
}
