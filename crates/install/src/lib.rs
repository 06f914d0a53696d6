//! Installs the agent on this host, and removes it: `topdeck install`, `topdeck uninstall`.
//!
//! An installation is one transaction: each change has its undo ([`changes`]), and the files are
//! listed in a manifest before they are written, so that `uninstall` removes them also after a
//! crash. docs/install.md, *One command*, describes what users see.
//!
//! Errors are only printed, so they are those of `anyhow`.
#![forbid(unsafe_code)]

mod agent_settings;
mod changes;
mod discovery;
mod host_root;
mod install;
mod manifest;
mod server_api;
mod service;
mod system_user;
mod uninstall;

pub use install::{InstallOptions, install};
pub use uninstall::{UninstallOptions, uninstall};
