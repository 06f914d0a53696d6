//! CAQL, the stream language of Circonus.
