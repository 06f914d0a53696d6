/** A string in the browser's storage. Where the browser denies storage, it lasts until reload. */

export class PersistedValue {
  private value: string | null = null;

  constructor(
    private readonly storage: "localStorage" | "sessionStorage",
    private readonly key: string,
  ) {
    try {
      this.value = window[storage].getItem(key);
    } catch {
      // Storage is denied.
    }
  }

  get(): string | null {
    return this.value;
  }

  set(value: string): void {
    this.value = value;
    try {
      if (value) window[this.storage].setItem(this.key, value);
      else window[this.storage].removeItem(this.key);
    } catch {
      // Storage is denied.
    }
  }
}
