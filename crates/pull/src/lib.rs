//! What is fetched: scrapes and checks on an open schedule.
#![forbid(unsafe_code)]
