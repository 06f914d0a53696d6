//! Who batches come from, where they bring no identity of their own.

use std::sync::{Arc, Mutex};

/// A source of this process. Its batches get rising numbers, in the order in which they are taken.
#[derive(Clone, Debug)]
pub struct Producer(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) name: String,
    pub(crate) id: u64,
    /// The last batch's sequence; held while a batch is appended, so that the journal has them in order.
    pub(crate) sequence: Mutex<u64>,
}

impl Producer {
    /// Its name, as the books have it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number that identities have.
    pub fn id(&self) -> u64 {
        self.0.id
    }
}
