//! The settings file: parsing shared by all tables, which their roles read and check.
//!
//! A file is parsed once ([`Document`]). Each owner of top-level keys reads them into its own type
//! and reports problems that the TOML parser cannot detect ([`SettingsCheck`]). The problems of all
//! owners are reported together, each with its line ([`Problems`]).

mod check;
mod document;
mod problem;
mod unread_keys;
mod value;

pub use check::{SettingsCheck, SettingsCount, Transport};
pub use document::{Document, RenamedKey, TableRef};
pub use problem::Problems;
pub use value::{
    DurationSetting, FilePath, Size, client_tls, deserialize_text, duration_or, parse_size,
    read_token,
};
