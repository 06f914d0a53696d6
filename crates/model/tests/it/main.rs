//! Integration tests of `model`.

mod selectors;
