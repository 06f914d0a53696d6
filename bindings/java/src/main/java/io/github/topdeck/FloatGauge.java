package io.github.topdeck;

/** Floating-point number; the last write wins. */
public final class FloatGauge extends Metric {
    /** Registers a floating-point gauge, or finds it. */
    public FloatGauge(Description description) {
        super(description, Layout.Kind.FLOAT_GAUGE);
    }

    /** Sets the value. */
    public void set(double value) {
        setCell(small, Double.doubleToRawLongBits(value));
    }
}
