//! Redis (RESP 2 and 3).

mod captured_arguments;
mod commands;
pub(crate) mod observer;
mod reply_parser;
mod requests;
mod resp_parser;

pub use reply_parser::{RedisReply, ReplyParser};

/// Encodes a command as an array of bulk strings.
pub fn encode_command<'a>(
    arguments: impl IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator>,
    out: &mut Vec<u8>,
) {
    let arguments = arguments.into_iter();
    let head = |mark: u8, number: usize, out: &mut Vec<u8>| {
        out.push(mark);
        out.extend_from_slice(number.to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    head(b'*', arguments.len(), out);
    for argument in arguments {
        head(b'$', argument.len(), out);
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}
