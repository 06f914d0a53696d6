package io.github.topdeck;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;

/**
 * Words of a mapped part of the file. Offsets are multiples of 8 with space in the file: an access
 * to a page without space would raise SIGBUS, which HotSpot turns into an InternalError.
 *
 * <p>A thread writes its own lane with plain accesses: on 64-bit HotSpot an aligned word is one
 * instruction, and readers of another process see whole words. Fences keep the order.
 */
final class Memory {
    private static final VarHandle WORDS =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());

    private final ByteBuffer bytes;
    private final LongBuffer words;

    /** The buffer has the byte order of the machine. */
    Memory(ByteBuffer bytes) {
        this.bytes = bytes;
        words = bytes.asLongBuffer();
    }

    /** Loads a word that no other thread writes. */
    long loadOwned(int offset) {
        return words.get(offset >>> 3);
    }

    /** Stores a word that no other thread writes, in no order. */
    void storeOwned(int offset, long value) {
        words.put(offset >>> 3, value);
    }

    /** Adds to a word that no other thread writes, in no order. */
    void addOwned(int offset, long n) {
        int at = offset >>> 3;
        words.put(at, words.get(at) + n);
    }

    /** Stores before it are seen before those after it. */
    static void fence() {
        VarHandle.releaseFence();
    }

    long load(int offset) {
        return (long) WORDS.getOpaque(bytes, offset);
    }

    long loadAcquire(int offset) {
        return (long) WORDS.getAcquire(bytes, offset);
    }

    /** A store that stays behind all before it. */
    void store(int offset, long value) {
        WORDS.setRelease(bytes, offset, value);
    }

    /** Adds to a word that other threads write; returns the value before. */
    long add(int offset, long n) {
        return (long) WORDS.getAndAdd(bytes, offset, n);
    }

    boolean compareAndSet(int offset, long expected, long value) {
        return WORDS.compareAndSet(bytes, offset, expected, value);
    }

    void or(int offset, long bits) {
        long unused = (long) WORDS.getAndBitwiseOr(bytes, offset, bits);
    }

    /** Raises an unsigned word that other threads write. */
    void raise(int offset, long value) {
        long current = load(offset);
        while (Long.compareUnsigned(value, current) > 0
                && !compareAndSet(offset, current, value)) {
            current = load(offset);
        }
    }
}
