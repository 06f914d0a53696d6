package io.github.topdeck;

/** Text of up to 240 bytes: a version, a state, the name of a leader. */
public final class Text extends Metric {
    /** A writer fills the inactive buffer. */
    private static final long WRITING = Long.MIN_VALUE;

    /** Registers a text, or finds it. */
    public Text(Description description) {
        super(description, Layout.Kind.TEXT);
    }

    /** Sets the text, truncated to 240 bytes at a character; returns whether all of it fit. */
    public boolean set(String text) {
        Lane shared = Topdeck.sharedLane(small);
        if (shared == null) {
            return false;
        }
        byte[] bytes = Description.utf8(text);
        int end = Math.min(bytes.length, Layout.TEXT_MAX);
        while (end < bytes.length && end > 0 && (bytes[end] & 0xc0) == 0x80) {
            end--;
        }
        Memory memory = shared.memory;
        long current = memory.load(small) & ~WRITING;
        while (!memory.compareAndSet(small, current, current | WRITING)) {
            Thread.onSpinWait();
            current = memory.load(small) & ~WRITING;
        }
        long next = (current + 1) & ~WRITING;
        int buffer = small + ((next & 1) == 0 ? Layout.TEXT_BUFFER_0 : Layout.TEXT_BUFFER_1);
        memory.store(buffer, end);
        for (int at = 0; at < end; at += 8) {
            memory.store(buffer + 8 + at, Registry.word(bytes, at, end));
        }
        memory.store(small, next);
        return end == bytes.length;
    }
}
