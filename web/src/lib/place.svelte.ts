/** Where the page is: the address, read and written. Every setting of a view is in it, so that "back" goes back. */

import { read, write, type Place, type ViewName } from "./link";

class Here {
  private now = $state<Place>(read(location.hash));

  constructor() {
    window.addEventListener("hashchange", () => (this.now = read(location.hash)));
    window.addEventListener("popstate", () => (this.now = read(location.hash)));
  }

  get view(): ViewName {
    return this.now.view;
  }

  /** A setting of the view, or what it is when nobody said. */
  get(name: string, otherwise = ""): string {
    return this.now.settings[name] ?? otherwise;
  }

  /** Changes settings. `quietly` leaves no trace in the history: for what changes while something is dragged. */
  set(changes: Record<string, string>, quietly = false): void {
    this.go({ view: this.now.view, settings: { ...this.now.settings, ...changes } }, quietly);
  }

  go(place: Place, quietly = false): void {
    const address = write(place);
    if (address === write(this.now)) return;
    this.now = read(address);
    try {
      if (quietly) history.replaceState(null, "", address);
      else history.pushState(null, "", address);
    } catch {
      // Some browsers refuse when a key is held down for long: the view changes, the address with the next change.
    }
  }
}

export const here = new Here();
