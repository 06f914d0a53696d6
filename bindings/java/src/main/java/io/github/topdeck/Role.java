package io.github.topdeck;

/** Meaning of a metric; most are relative to another metric: {@link Description#related}. */
public enum Role {
    OTHER,
    TIMING,
    /** Of a resource. */
    CAPACITY,
    /** Part of a capacity. */
    USAGE,
    /** Of a cache, whose size is related. */
    HIT,
    MISS,
    SIZE,
    /** Waiting for a capacity. */
    QUEUE,
    /** Of the related operation. */
    ERROR,
    /** Made by the related operation. */
    SUBCALLS
}
