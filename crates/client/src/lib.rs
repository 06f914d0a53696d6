//! Client side of commands: requests to a server, output, and progress.
//!
//! [`ServerClient`] has the options that name a server, and sends single requests;
//! [`ServerSession`] keeps its connection for many. Without an option the server is that of the
//! default data directory ([`server_of`]). Errors are only printed, so they are those of `anyhow`.
#![forbid(unsafe_code)]

mod local_server;
mod output;
mod progress_line;
mod server_client;
mod server_session;

pub use local_server::{
    LOCK_FILE, STORE_DIR, default_data_dir, private_dir, server_of, server_pin_of,
};
pub use output::{print_message, print_stderr, print_stdout};
pub use progress_line::{ProgressLine, bar_text};
pub use server_client::{RequestParameters, ServerClient, response_error, unreachable_error};
pub use server_session::ServerSession;
