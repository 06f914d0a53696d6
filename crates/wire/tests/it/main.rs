//! Integration tests of the packet observer.
