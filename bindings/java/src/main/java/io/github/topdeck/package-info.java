/**
 * Metrics in shared memory: a program counts and times with a few plain instructions, and any
 * process of the host reads whole distributions at any time, also after the program has died.
 *
 * <pre>{@code
 * static final Counter ANSWERED = new Counter(new Description("answered_total"));
 * static final Histogram TOOK = new Histogram(new Description("answer_duration").unit("ns"));
 *
 * try (var timer = TOOK.start()) {
 *     answer();
 * }
 * ANSWERED.add(1);
 * }</pre>
 *
 * No configuration and no error handling is required: a metric that could not be registered records
 * nothing, and {@link io.github.topdeck.Metric#error} has the reason. {@code TOPDECK_SHM} in the
 * environment sets another directory, or disables recording with {@code off}.
 */
package io.github.topdeck;
