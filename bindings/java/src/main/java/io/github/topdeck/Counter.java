package io.github.topdeck;

/** Monotonic counter: the sum of all additions, modulo 2^64. */
public final class Counter extends Metric {
    /** Registers a counter, or finds the one with the same name, labels and unit. */
    public Counter(Description description) {
        super(description, Layout.Kind.COUNTER);
    }

    /** Adds a number of at least 0. */
    public void add(long n) {
        addCell(small, n);
    }

    /** Adds 1. */
    public void increment() {
        addCell(small, 1);
    }
}
