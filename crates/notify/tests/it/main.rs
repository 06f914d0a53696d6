//! Contacts against receivers on the loopback interface, and the log of deliveries on a simulated
//! disk.

mod alerts;
mod checks;
mod contact_faults;
mod contact_tests;
mod contacts_page;
mod crashes;
mod delivery_log;
mod dispatch_panics;
mod format_page;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod http_receiver;
mod mail_receiver;
mod notifier;
mod on_call_calendars;
mod pictures;
mod process_kills;
mod routing;
mod schemas;
mod settings;
mod silence_page;
mod standby;
