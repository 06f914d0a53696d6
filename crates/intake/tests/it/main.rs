//! The intake through its public interface.

mod absence;
mod backpressure;
mod basics;
mod damage;
#[path = "../../../journal/tests/it/dying_process.rs"]
mod dying;
mod fixture;
mod layout;
mod ledger;
mod limits;
mod panics;
