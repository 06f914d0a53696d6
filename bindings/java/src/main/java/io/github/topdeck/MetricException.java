package io.github.topdeck;

/** A metric could not be registered, or there is no metrics file. */
public final class MetricException extends Exception {
    private static final long serialVersionUID = 1;

    MetricException(String message) {
        super(message);
    }

    MetricException(String message, Throwable cause) {
        super(message + ": " + cause.getMessage(), cause);
    }
}
