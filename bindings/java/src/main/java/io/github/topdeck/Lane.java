package io.github.topdeck;

import java.lang.ref.WeakReference;
import java.util.BitSet;

/** A lane: the cells of all metrics, written by one thread at a time. */
final class Lane {
    final int number;
    final Memory memory;
    /** End of the usable small cells. Of lane 0 others read it: it is published by {@link #all}. */
    int end;
    /** Pages with space; guarded by the file. */
    final BitSet pages = new BitSet();
    /** The owning thread; guarded by the file. A cleared reference is a thread that has ended. */
    private WeakReference<Thread> owner = new WeakReference<>(null);

    Lane(int number, Memory memory) {
        this.number = number;
        this.memory = memory;
    }

    /**
     * Whether no thread owns the lane. What a thread did happens before its end is noticed, so that
     * the next owner continues with its counts.
     */
    boolean isFree() {
        Thread thread = owner.get();
        return thread == null || !thread.isAlive();
    }

    void take() {
        owner = new WeakReference<>(Thread.currentThread());
    }
}
