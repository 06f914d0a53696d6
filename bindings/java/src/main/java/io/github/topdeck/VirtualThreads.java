package io.github.topdeck;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/** Virtual threads, of Java 21, are too many for lanes of their own: they share lane 0. */
final class VirtualThreads {
    private VirtualThreads() {}

    private static final MethodHandle IS_VIRTUAL = find();

    private static MethodHandle find() {
        try {
            return MethodHandles.publicLookup()
                    .findVirtual(Thread.class, "isVirtual", MethodType.methodType(boolean.class));
        } catch (ReflectiveOperationException error) {
            return null;
        }
    }

    static boolean isVirtual(Thread thread) {
        try {
            return IS_VIRTUAL != null && (boolean) IS_VIRTUAL.invokeExact(thread);
        } catch (Throwable error) {
            return false;
        }
    }
}
