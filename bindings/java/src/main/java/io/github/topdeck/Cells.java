package io.github.topdeck;

/** Offsets of the cells of a metric in each lane; an unregistered one is beyond every lane. */
record Cells(int small, int large) {
    static final Cells NONE = new Cells(Layout.SMALL_BYTES, 0);

    long word() {
        return (long) large << 32 | small;
    }
}
