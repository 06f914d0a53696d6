//! The settings file: what its tables have in common, read and checked by the roles they belong to.
//!
//! A file is parsed once ([`Document`]). Each owner of top-level keys reads these into its own type
//! and reports what TOML cannot know ([`SettingsCheck`]). All problems of all owners are reported
//! together, each with its line ([`Problems`]).

mod check;
mod document;
mod problem;
mod value;

pub use check::{SettingsCheck, SettingsCount, Transport};
pub use document::{Document, RenamedKey, TableRef};
pub use problem::Problems;
pub use value::{
    FilePath, Length, Size, client_tls, deserialize_text, length_or, parse_size, read_token,
};
