//! A session with a server that is a script.

use tokio::net::TcpListener;

use super::*;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

fn row(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        let length = value.map_or(-1, |value| value.len() as i32);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default().as_bytes());
    }
    message(b'D', &body)
}

fn error(code: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0C{code}\0M{text}\0\0").as_bytes())
}

/// What a server sends after the startup message until it is ready.
fn login(version: &str) -> Vec<u8> {
    let version = format!("server_version\0{version}\0");
    let messages = [(b'R', &[0, 0, 0, 0][..]), (b'S', version.as_bytes()), (b'K', &[0; 8])];
    let mut bytes: Vec<u8> =
        messages.iter().flat_map(|(kind, body)| message(*kind, body)).collect();
    bytes.extend(message(b'Z', b"I"));
    bytes
}

/// Connects to a server that sends an answer to the startup message and one to a query.
async fn run(
    start: Vec<u8>,
    answer: Vec<u8>,
    parameters: &str,
) -> (Result<Vec<ResultRow>, QueryFailure>, String) {
    run_within([RESPONSE_TIMEOUT; 2], start, answer, parameters).await
}

async fn run_within(
    [response_timeout, query_timeout]: [Duration; 2],
    start: Vec<u8>,
    answer: Vec<u8>,
    parameters: &str,
) -> (Result<Vec<ResultRow>, QueryFailure>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let ends_with_error = answer.first() == Some(&b'E') && !answer.ends_with(b"I");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = vec![0; 4096];
        for bytes in [start, answer] {
            let Ok(1..) = stream.read(&mut received).await else { return };
            stream.write_all(&bytes).await.unwrap();
        }
        // It closes after an error, and else waits for the end of the test.
        if !ends_with_error {
            let _ = stream.read(&mut received).await;
        }
    });
    let text = format!("host=127.0.0.1 port={port} {parameters}");
    let settings = SessionSettings {
        server: ConnectionString::parse(&text).unwrap(),
        password: PasswordSource::default(),
        tls: ClientTls::default(),
        response_timeout,
    };
    let outcome = match PostgresSession::open(&settings).await {
        Ok(mut session) => {
            session.response_timeout = query_timeout;
            (session.query("SELECT 1").await, session.version_text)
        }
        Err(failure) => (Err(failure), String::new()),
    };
    server.abort();
    outcome
}

#[track_caller]
fn check(found: (Result<Vec<ResultRow>, QueryFailure>, String), expected: &str) {
    let text = match found.0 {
        Ok(rows) => format!("{rows:?}"),
        Err(QueryFailure::Rejected(code, text)) => format!("rejected {code}: {text}"),
        Err(QueryFailure::Broken(text)) => format!("broken: {text}"),
    };
    // The port is another one in each run.
    let text = text.split(' ').map(|word| match word.strip_prefix("127.0.0.1:") {
        Some(_) => "ADDRESS:",
        None => word,
    });
    assert_eq!(text.collect::<Vec<_>>().join(" "), expected);
}

#[tokio::test]
async fn rows_errors_and_notices_are_told_apart() {
    let answer = [
        message(b'N', b"SWARNING\0\0"),
        message(b'T', b""),
        row(&[Some("a"), None, Some("")]),
        message(b'C', b"SELECT 1\0"),
        message(b'Z', b"I"),
    ];
    let found = run(login("15.18 (Debian)"), answer.concat(), "").await;
    assert_eq!(found.1, "15.18 (Debian)");
    check(found, r#"[[Some("a"), None, Some("")]]"#);
    let answer = [error("42501", "permission denied for x"), message(b'Z', b"I")];
    let expected = "rejected 42501: ERROR: permission denied for x (42501)";
    check(run(login("19beta1"), answer.concat(), "").await, expected);
    let answer = error("57P01", "terminating connection");
    let expected = "broken: ERROR: terminating connection (57P01)";
    check(run(login("15.1"), answer, "").await, expected);
}

#[tokio::test]
async fn a_server_that_is_none_or_too_old_is_refused_with_the_reason() {
    let wrong = "the server does not speak PostgreSQL's protocol; check the port";
    let expected = format!("broken: cannot connect to ADDRESS: {wrong}");
    check(run(b"HTTP/1.1 400 Bad Request\r\n".to_vec(), Vec::new(), "").await, &expected);
    let expected = "rejected : cannot connect to ADDRESS: the server is PostgreSQL 12.4, topdeck \
                    needs 13 or later; upgrade the server";
    check(run(login("12.4"), Vec::new(), "").await, expected);
    let expected = "rejected 3D000: cannot connect to ADDRESS: ERROR: no x (3D000); set dbname in \
                    `dsn`";
    check(run(error("3D000", "no x"), Vec::new(), "").await, expected);
    let expected = "rejected : cannot connect to ADDRESS: the server has no TLS; set ssl = on \
                    there, or sslmode=disable in `dsn`";
    check(run(b"N".to_vec(), Vec::new(), "sslmode=require").await, expected);
    let short = message(b'D', b"\0\x01\0\0\0\x05ab");
    check(run(login("15.1"), short, "").await, "broken: malformed row");
}

#[tokio::test]
async fn a_server_that_hangs_is_left_with_the_reason() {
    let limits = [Duration::from_millis(20); 2];
    let expected = "broken: cannot connect to ADDRESS: no response within 20ms";
    check(run_within(limits, Vec::new(), Vec::new(), "").await, expected);
    // The answer to the query has no end.
    let (rows, limits) = (row(&[Some("a")]), [RESPONSE_TIMEOUT, limits[1]]);
    let found = run_within(limits, login("15.1"), rows, "").await;
    check(found, "broken: no response within 20ms");
}

#[tokio::test]
async fn a_result_that_is_too_large_fails_alone() {
    let large = "x".repeat(1 << 19);
    let too_many_bytes = row(&[Some(&large)]).repeat(33);
    let too_many_rows = row(&[Some("a")]).repeat(ROWS_MAX + 1);
    let end = message(b'Z', b"I");
    let expected = "rejected : the result has more than 20000 rows";
    check(run(login("15.1"), [&too_many_rows[..], &end].concat(), "").await, expected);
    let expected = "rejected : the result has more than 16777216 bytes";
    check(run(login("15.1"), [&too_many_bytes[..], &end].concat(), "").await, expected);
}

#[tokio::test]
async fn texts_of_the_server_are_cut() {
    let long = "é".repeat(1_000);
    let answer = [error("42501", &long), message(b'Z', b"I")].concat();
    let (result, version) = run(login(&format!("15.1 {long}")), answer, "").await;
    assert_eq!(version.chars().count(), VERSION_CHARS_MAX);
    let Err(QueryFailure::Rejected(code, text)) = result else { panic!("{result:?}") };
    assert_eq!((&*code, text.chars().count()), ("42501", ERROR_CHARS_MAX));
}

#[test]
fn a_password_is_sent_to_a_verified_server_or_to_this_host_only() {
    let file = Some("/absent/password".into());
    let place = PasswordSource { file, pgpass: None };
    let ask = |dsn: &str, method: u8| {
        let server = ConnectionString::parse(dsn).unwrap();
        let request = [0, 0, 0, method, 1, 2, 3, 4];
        let password = || place.read(&server, |name| std::env::var_os(name));
        let mut login = PostgresLogin::new(&server.user, &password, trust(&server));
        match login.answer(&request, &mut BytesMut::new()).map_err(QueryFailure::from) {
            Err(QueryFailure::Rejected(_, text)) => text,
            other => panic!("{other:?}"),
        }
    };
    for method in [3, 5] {
        for dsn in ["host=db.example sslmode=require", "host=db.example sslmode=disable"] {
            let text = ask(dsn, method);
            assert!(text.contains("sslmode=verify-full"), "{dsn} {method}: {text}");
        }
        for dsn in ["host=db.example", "host=127.0.0.1", "", "host=::1 sslmode=require"] {
            let text = ask(dsn, method);
            assert!(text.starts_with("cannot read the password: "), "{dsn} {method}: {text}");
        }
    }
}

#[test]
fn damaged_rows_are_no_rows() {
    let row = |body: &[u8]| parse_row(body);
    assert_eq!(row(b"\0\0"), Some(Vec::new()));
    assert_eq!(row(b"\0\x01\xff\xff\xff\xff"), Some(vec![None]));
    assert_eq!(row(b"\0\x01\0\0\0\x02ab"), Some(vec![Some("ab".to_owned())]));
    assert_eq!(row(&[0, 65]), None);
    for body in [&b""[..], b"\0", b"\0\x01", b"\0\x01\0\0\0\x02a", b"\0\x01\0\0\0\x01ab"] {
        assert_eq!(row(body), None, "{body:?}");
    }
}
