//! Round trips: the parser of a direction reads the same number and kinds of messages that the
//! encoder wrote.

use proptest::prelude::*;
use protocol::http1::{Http1Request, RequestParser};
use protocol::redis::{RedisReply, ReplyParser, encode_command};

proptest! {
    #[test]
    fn commands_are_read(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..4),
            0..5,
        ),
    ) {
        let mut out = Vec::new();
        for words in &commands {
            encode_command(words.iter().map(Vec::as_slice), &mut out);
        }
        let (mut parser, mut bytes) = (ReplyParser::default(), out.as_slice());
        for _ in &commands {
            let expected = Some(RedisReply { is_error: false, is_push: false });
            prop_assert_eq!(parser.read(&mut bytes), Ok(expected));
        }
        prop_assert!(bytes.is_empty() && parser.is_between());
    }

    #[test]
    fn http_requests_are_read(
        requests in prop::collection::vec(
            ("[A-Z]{1,8}", "/[a-z?=%]{0,20}", prop::collection::vec(any::<u8>(), 0..40)),
            0..5,
        ),
    ) {
        let mut out = Vec::new();
        for (method, path, body) in &requests {
            let headers = [("A".to_owned(), "b".to_owned())];
            let request = Http1Request { method, path, headers: &headers, body };
            prop_assert_eq!(request.check(), Ok(()));
            request.encode("a:80", &mut out);
        }
        let (mut parser, mut bytes) = (RequestParser::default(), out.as_slice());
        for (method, ..) in &requests {
            let operation = parser.read(&mut bytes).unwrap().unwrap();
            prop_assert_eq!(operation.method.as_str(), method);
        }
        prop_assert!(bytes.is_empty());
    }
}
