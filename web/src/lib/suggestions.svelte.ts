/** Suggestions for a text field: the list, the selected one, and the keys that work on them. */

import { tick } from "svelte";

import { isAborted } from "./api";
import { complete, MetricCatalog, type Suggestion } from "./complete";
import type { InputSyntax } from "./completionContext";

type TextField = HTMLInputElement | HTMLTextAreaElement;

export class Suggestions {
  list = $state.raw<Suggestion[]>([]);
  /** Index of the suggestion that is selected by keys, or -1. */
  selected = $state(-1);
  private open = $state(false);
  private readonly catalog = new MetricCatalog();
  private controller: AbortController | null = null;

  /** `onAccept` gets the new text of the field, and whether it is complete. */
  constructor(
    readonly id: string,
    private readonly field: () => TextField | null,
    private readonly syntax: () => InputSyntax,
    private readonly kinds: (() => readonly string[]) | null,
    private readonly onAccept: (text: string, isComplete: boolean) => void,
  ) {}

  get isOpen(): boolean {
    return this.open && this.list.length > 0;
  }

  /** Id of the selected element, for screen readers. */
  get active(): string | undefined {
    return this.isOpen && this.selected >= 0 ? this.idOf(this.selected) : undefined;
  }

  idOf(index: number): string {
    return `${this.id}-${index}`;
  }

  async show(): Promise<void> {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    const field = this.field();
    if (!field) return;
    const [text, caret] = [field.value, field.selectionStart ?? field.value.length];
    const query = { text, caret, syntax: this.syntax(), catalog: this.catalog, signal };
    try {
      const all = await complete(this.kinds ? { ...query, kinds: this.kinds() } : query);
      if (signal.aborted) return;
      // A suggestion that equals the text of the field is useless.
      const list = all.filter((one) => one.text !== text);
      [this.list, this.selected, this.open] = [list, -1, true];
    } catch (error) {
      // The field works without suggestions.
      if (!isAborted(error)) this.open = false;
    }
  }

  hide(): void {
    this.controller?.abort();
    this.open = false;
  }

  accept(suggestion: Suggestion): void {
    this.hide();
    this.onAccept(suggestion.text, !suggestion.continues);
    // The field has the text after the next update. One frame later the user may have typed on.
    void tick().then(() => {
      const field = this.field();
      if (!field) return;
      field.focus();
      field.setSelectionRange(suggestion.caret, suggestion.caret);
      if (suggestion.continues) void this.show();
    });
  }

  /** Handles a key; returns whether it was one of the list's. */
  handleKey(event: KeyboardEvent): boolean {
    const size = this.list.length;
    // While an input method composes a character, the keys belong to it.
    if (!this.isOpen || event.isComposing) return false;
    const isAccept = event.key === "Enter" || event.key === "Tab";
    if (event.key === "ArrowDown") this.selected = (this.selected + 1) % size;
    else if (event.key === "ArrowUp") {
      this.selected = (this.selected <= 0 ? size : this.selected) - 1;
    } else if (event.key === "Escape") this.hide();
    else if (isAccept && this.list[this.selected]) this.accept(this.list[this.selected]!);
    else return false;
    event.preventDefault();
    return true;
  }
}
