/** What this browser keeps for the page, as long as it keeps anything: it can be told not to, and then refuses to be asked. */

export class Kept {
  private held: string | null = null;

  constructor(
    private readonly storage: "localStorage" | "sessionStorage",
    private readonly key: string,
  ) {
    try {
      this.held = window[storage].getItem(key);
    } catch {
      // It lasts until the page is loaded anew.
    }
  }

  get(): string | null {
    return this.held;
  }

  set(value: string): void {
    this.held = value;
    try {
      if (value) window[this.storage].setItem(this.key, value);
      else window[this.storage].removeItem(this.key);
    } catch {
      // As above.
    }
  }
}
