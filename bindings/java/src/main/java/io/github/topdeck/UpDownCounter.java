package io.github.topdeck;

/** The sum of all additions and subtractions. */
public final class UpDownCounter extends Metric {
    /** Registers an up-down counter, or finds it. */
    public UpDownCounter(Description description) {
        super(description, Layout.Kind.UP_DOWN);
    }

    /** Adds a number, which may be negative. */
    public void add(long n) {
        addCell(small, n);
    }
}
