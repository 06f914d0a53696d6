//! This host: procfs, BPF, hiccups.
#![deny(unsafe_code)]
