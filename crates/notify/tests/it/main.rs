//! Contacts against receivers on the loopback interface, and the log of deliveries on a simulated
//! disk.

mod alerts;
mod contact_faults;
mod contacts_page;
mod crashes;
mod delivery_log;
mod format_page;
mod http_receiver;
mod mail_receiver;
mod notifier;
mod process_kills;
mod routing;
mod schemas;
mod settings;
mod silence_page;
mod standby;
