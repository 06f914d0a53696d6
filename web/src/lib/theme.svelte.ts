/** Light, dark, or the system's theme. Stored in the browser. */

import { PersistedValue } from "./persisted";

const stored = new PersistedValue("localStorage", "topdeck-theme");
const CHOICES = ["auto", "light", "dark"] as const;
type ThemeChoice = (typeof CHOICES)[number];

class Theme {
  choice = $state<ThemeChoice>("auto");
  private system = matchMedia("(prefers-color-scheme: dark)");
  private systemIsDark = $state(false);

  constructor() {
    const saved = stored.get();
    this.choice = CHOICES.find((choice) => choice === saved) ?? "auto";
    this.systemIsDark = this.system.matches;
    this.system.addEventListener("change", (event) => {
      this.systemIsDark = event.matches;
      this.apply();
    });
    this.apply();
  }

  get isDark(): boolean {
    return this.choice === "dark" || (this.choice === "auto" && this.systemIsDark);
  }

  next(): void {
    this.choice = CHOICES[(CHOICES.indexOf(this.choice) + 1) % CHOICES.length]!;
    stored.set(this.choice);
    this.apply();
  }

  private apply(): void {
    document.documentElement.dataset["theme"] = this.isDark ? "dark" : "light";
  }
}

export const theme = new Theme();
