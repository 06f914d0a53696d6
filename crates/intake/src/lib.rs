//! Where batches go: into the journal, of a store or of an agent alone, and only then is the sender told.
//!
//! A source asks for a [`Writer`], fills it with rows, and gives it to [`Intake::take`]. What it gets is a
//! [`Receipt`]: the batch is in the journal, and [`Receipt::wait`] or [`Receipt::settled`] say when it has reached the
//! level that was promised. Many wait for one synchronisation. A batch has an identity, its own or one that is made
//! here, so that a repeat is counted once, and each producer has its line in the books.
#![forbid(unsafe_code)]

mod counts;

mod book;
mod book_file;
mod books;

mod commit;
mod error;
mod home;
mod known_keys;
mod meter;
mod own;
mod producer;
mod recent_batches;
mod rejections;
mod restart;
mod series;
mod take;
mod upkeep;
mod way;
mod writer;

mod audit;

pub use audit::{Account, Audit, Hop, Line, Source};
pub use book::{Book, Counted, Entry, PRODUCERS_MAX};
pub use book_file::{BookFile, Found, VERSION as BOOK_VERSION};
pub use commit::Receipt;
pub use counts::{Counts, Loss};
pub use error::{Error, Result};
pub use home::Home;
pub use journal::supervisor::{
    DamageReport, QuarantinedInput, SupervisedThread, Supervisor, ThreadStatus, panic_message,
};
pub use known_keys::ProducerKey;
pub use meter::{Counter, Measured, Meter, Now, Timer};
pub use producer::Producer;
pub use restart::{Restartable, caught, keep_running};
pub use take::{Intake, Log, OPEN_SEQUENCE_JUMP_MAX, PARCEL_JUMP_MAX, SEQUENCE_JUMP_MAX, Settings};
pub use way::Way;
pub use writer::Writer;
