//! Agents with real journals, and sites that fail in all ways a network and a process can.

mod agent;
mod clock;
mod drain;
mod faults;
mod gaps;
mod keys;
mod panics;
mod remote;
