//! Commands of a client, and the form of their responses.

/// A command by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MysqlCommand {
    pub(super) name: &'static str,
    pub(super) response: ResponseForm,
}

/// How the response to a command starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseForm {
    /// OK, an error, a request for a file, or columns and rows.
    Results,
    /// Rows, without their columns.
    Rows,
    /// Definitions up to EOF.
    Definitions,
    /// The identifier of a prepared statement, and definitions.
    Prepared,
    /// One packet.
    Single,
    /// Messages of the authentication.
    Authentication,
    /// No response.
    None,
    /// A stream.
    Stream,
}

pub(super) const QUERY: u8 = 0x03;
pub(super) const PREPARE: u8 = 0x16;
pub(super) const EXECUTE: u8 = 0x17;
pub(super) const CLOSE: u8 = 0x19;
pub(super) const FETCH: u8 = 0x1c;
pub(super) const BULK_EXECUTE: u8 = 0xfa;
pub(super) const CHANGE_USER: u8 = 0x11;
pub(super) const RESET_CONNECTION: u8 = 0x1f;

impl MysqlCommand {
    /// The login, which is no command.
    pub(super) const CONNECT: MysqlCommand =
        MysqlCommand { name: "Connect", response: ResponseForm::Authentication };

    /// The command with this first byte. `None` if there is none.
    pub(super) fn new(first: u8) -> Option<MysqlCommand> {
        use ResponseForm::{
            Authentication, Definitions, None as NoResponse, Prepared, Results, Rows, Single,
            Stream,
        };
        let (name, response) = match first {
            0x01 => ("Quit", NoResponse),
            0x02 => ("InitDb", Single),
            QUERY => ("Query", Results),
            0x04 => ("FieldList", Definitions),
            0x05 => ("CreateDb", Single),
            0x06 => ("DropDb", Single),
            0x07 => ("Refresh", Single),
            0x08 => ("Shutdown", Single),
            0x09 => ("Statistics", Single),
            0x0a => ("ProcessInfo", Results),
            0x0c => ("ProcessKill", Single),
            0x0d => ("Debug", Single),
            0x0e => ("Ping", Single),
            CHANGE_USER => ("ChangeUser", Authentication),
            // COM_BINLOG_DUMP, COM_TABLE_DUMP, COM_BINLOG_DUMP_GTID, and that of group replication.
            0x12 | 0x13 | 0x1e | 0x20 => ("BinlogDump", Stream),
            0x15 => ("RegisterReplica", Single),
            PREPARE => ("Prepare", Prepared),
            EXECUTE => ("Execute", Results),
            0x18 => ("SendLongData", NoResponse),
            CLOSE => ("CloseStatement", NoResponse),
            0x1a => ("ResetStatement", Single),
            0x1b => ("SetOption", Single),
            FETCH => ("Fetch", Rows),
            RESET_CONNECTION => ("ResetConnection", Single),
            BULK_EXECUTE => ("BulkExecute", Results),
            _ => return None,
        };
        Some(MysqlCommand { name, response })
    }
}
