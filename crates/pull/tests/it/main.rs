//! Real servers, real connections: what they answer is what is in the journal, or why it is not.

mod checks;
mod fixture;
mod jobs;
mod panics;
mod scrapes;
