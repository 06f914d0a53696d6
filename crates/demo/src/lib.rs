//! Data of the demonstration: a made-up shop.
//!
//! The shop ([`synthetic::Shop`]) has a week of requests up to now, an incident three hours ago,
//! and continues. The statements of its database and two load tests are written as the role `wire`
//! and `topdeck load --push` write them ([`ShopWriter`]); settings, rules and a dashboard are
//! files. Errors are only printed, so they are those of `anyhow`.
#![forbid(unsafe_code)]

mod alert_history;
mod load_test;
mod sample_writer;
mod shop_files;
mod shop_writer;

pub use shop_files::{settings_text, write_files};
pub use shop_writer::{HistoryProgress, ShopWriter};
