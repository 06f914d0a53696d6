package io.github.topdeck;

/** Integer; the last write wins. */
public final class Gauge extends Metric {
    /** Registers an integer gauge, or finds it. */
    public Gauge(Description description) {
        super(description, Layout.Kind.GAUGE);
    }

    /** Sets the value. */
    public void set(long value) {
        setCell(small, value);
    }
}
