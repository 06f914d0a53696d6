/** Light, dark, or as the system has it. Remembered in this browser. */

import { Kept } from "./kept";

const kept = new Kept("localStorage", "topdeck-theme");
const CHOICES = ["auto", "light", "dark"] as const;
type Choice = (typeof CHOICES)[number];

class Theme {
  choice = $state<Choice>("auto");
  private system = matchMedia("(prefers-color-scheme: dark)");
  private systemIsDark = $state(false);

  constructor() {
    const held = kept.get();
    this.choice = CHOICES.find((choice) => choice === held) ?? "auto";
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
    kept.set(this.choice);
    this.apply();
  }

  private apply(): void {
    document.documentElement.dataset["theme"] = this.isDark ? "dark" : "light";
  }
}

export const theme = new Theme();
