/**
 * The current route, read from and written to the address. Each setting of a view is part of it, so
 * that the browser's back button restores the previous view.
 */

import { read, write, type Route } from "./link";

class RouteState {
  private state = $state<Route>(read(location.hash));

  constructor() {
    window.addEventListener("hashchange", () => (this.state = read(location.hash)));
    window.addEventListener("popstate", () => (this.state = read(location.hash)));
  }

  get current(): Route {
    return this.state;
  }

  get view(): string {
    return this.state.view;
  }

  /** A setting of the view, or its default. */
  get(name: string, otherwise = ""): string {
    return this.state.settings[name] ?? otherwise;
  }

  /**
   * Changes settings. `replacesEntry` adds no entry to the browser's history: for settings that
   * change while something is dragged.
   */
  set(changes: Record<string, string>, replacesEntry = false): void {
    const settings = { ...this.state.settings, ...changes };
    this.go({ view: this.state.view, settings }, replacesEntry);
  }

  go(to: Route, replacesEntry = false): void {
    const address = write(to);
    if (address === write(this.state)) return;
    this.state = read(address);
    try {
      if (replacesEntry) history.replaceState(null, "", address);
      else history.pushState(null, "", address);
    } catch {
      // Browsers limit the rate of history calls, which a held key exceeds. The view changes now,
      // the address with the next call.
    }
  }
}

export const route = new RouteState();
