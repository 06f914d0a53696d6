//! Checks of databases, against servers that send what they are told. `topdeck`'s tests check a
//! real PostgreSQL.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use pull::{CheckJobSettings, SqlProbe};

use crate::checks::check;
use crate::probes::{failure, failure_of, stream_server, success};

fn probe(scheme: &str, address: &str) -> SqlProbe {
    SqlProbe {
        sql: format!("{scheme}://u@{address}/shop"),
        query: "SELECT 7".to_owned(),
        ..SqlProbe::default()
    }
}

/// Message of PostgreSQL.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

const READY: &[u8] = b"Z\0\0\0\x05I";
const AUTHENTICATED: &[u8] = b"R\0\0\0\x08\0\0\0\0";

/// PostgreSQL that lets everyone in, and answers the query.
fn postgres_server(answer: impl Fn(&mut TcpStream, &str) + Send + 'static) -> String {
    stream_server(move |mut stream| {
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut startup).unwrap();
        assert!(startup.starts_with(b"\0\x03\0\0user\0u\0database\0shop\0"), "{startup:?}");
        let parameter = message(b'S', b"server_version\x0015.1\0");
        stream.write_all(&[AUTHENTICATED, &parameter, READY].concat()).unwrap();
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        let mut query =
            vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        stream.read_exact(&mut query).unwrap();
        answer(&mut stream, std::str::from_utf8(&query).unwrap());
    })
}

fn row(value: &str) -> Vec<u8> {
    message(b'D', &[b"\0\x01\0\0\0", &[value.len() as u8][..], value.as_bytes()].concat())
}

#[test]
fn postgres_is_queried() {
    let server = postgres_server(|stream, query| {
        assert!(query.starts_with("BEGIN READ ONLY;SET LOCAL statement_timeout="), "{query}");
        assert!(query.ends_with(";SELECT 7\n;ROLLBACK\0"), "{query}");
        let results = [row("7"), row("8"), message(b'C', b"SELECT 2\0"), READY.to_vec()];
        stream.write_all(&results.concat()).unwrap();
    });
    let (fixture, phases) = success(SqlProbe {
        expect_rows: Some(2),
        expect: Some("7".to_owned()),
        ..probe("postgres", &server)
    });
    assert_eq!(phases, ["resolve", "connect", "auth", "query", "total"]);
    assert_eq!(fixture.values_of("probe_sql_rows"), ["2"]);
    assert_eq!(fixture.values_of("probe_sql_value"), ["7"]);
    let expected = "the result has 2 rows, expected 1";
    failure(SqlProbe { expect_rows: Some(1), ..probe("postgres", &server) }, expected);
}

#[test]
fn errors_of_postgres_are_reasons() {
    let server = postgres_server(|stream, _| {
        let error = message(b'E', b"SERROR\0C42P01\0Mno such table\0\0");
        stream.write_all(&[&error, READY].concat()).unwrap();
    });
    let expected = "the query failed: ERROR: no such table (42P01)";
    failure(probe("postgres", &server), expected);
    let closing = postgres_server(|_, _| {});
    failure(probe("postgres", &closing), "the query failed: the server closed the connection");
    let other = stream_server(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad\r\n\r\n").unwrap());
    failure(probe("postgres", &other), "cannot log in: ");
    let refusing = stream_server(|mut stream| {
        let error = message(b'E', b"SFATAL\0C28000\0Mno entry\0\0");
        stream.write_all(&error).unwrap();
        // Reads until the client closes, so that the error arrives.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    failure(probe("postgres", &refusing), "cannot log in: FATAL: no entry (28000)");
    let asking = stream_server(|mut stream| {
        stream.write_all(&message(b'R', b"\0\0\0\x03")).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    failure(probe("postgres", &asking), "asks for a password; set password_file");
    let plain = stream_server(|mut stream| stream.write_all(b"N").unwrap());
    let secure = SqlProbe { secure: true, ..probe("postgres", &plain) };
    failure(secure, "the server has no TLS; set ssl = on there");
}

/// Packet of MySQL.
fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    [&length[..3], &[sequence], payload].concat()
}

fn read_packet(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
    stream.read_exact(&mut payload).unwrap();
    payload
}

const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];

fn greeting() -> Vec<u8> {
    let head = b"\x0a8.0.36\0\x07\0\0\0abcdefgh\0\0\x82\x2d\x02\0\x08\0\x15\0\0\0\0\0\0\0\0\0\0";
    packet(0, &[&head[..], b"ijklmnopqrst\0mysql_native_password\0"].concat())
}

/// MySQL that lets everyone in, and answers the third query.
fn mysql_server(answer: impl Fn(&mut TcpStream, &[u8]) + Send + 'static) -> String {
    stream_server(move |mut stream| {
        stream.write_all(&greeting()).unwrap();
        let login = read_packet(&mut stream);
        assert!(login[32..].starts_with(b"u\0\0shop\0mysql_native_password\0"), "{login:?}");
        stream.write_all(&packet(2, OK)).unwrap();
        assert_eq!(read_packet(&mut stream), b"\x03SET SESSION TRANSACTION READ ONLY");
        stream.write_all(&packet(1, OK)).unwrap();
        assert!(read_packet(&mut stream).starts_with(b"\x03SET SESSION max_execution_time="));
        // As of a server without that limit.
        stream.write_all(&packet(1, b"\xff\xa9\x04#HY000unknown variable")).unwrap();
        let query = read_packet(&mut stream);
        answer(&mut stream, &query);
    })
}

#[test]
fn mysql_is_queried() {
    let server = mysql_server(|stream, query| {
        assert_eq!(query, b"\x03SELECT 7");
        let packets = [&[1][..], b"definition", EOF, b"\x017", EOF];
        let packets = packets.iter().zip(1..).map(|(payload, number)| packet(number, payload));
        stream.write_all(&packets.collect::<Vec<_>>().concat()).unwrap();
    });
    let expecting = SqlProbe { expect: Some("7".to_owned()), ..probe("mysql", &server) };
    let (fixture, phases) = success(expecting);
    assert_eq!(phases, ["resolve", "connect", "auth", "query", "total"]);
    assert_eq!(fixture.values_of("probe_sql_rows"), ["1"]);
    assert_eq!(fixture.values_of("probe_sql_value"), ["7"]);
    let expected = "the first value is \"7\", expected \"0\"";
    failure(SqlProbe { expect: Some("0".to_owned()), ..probe("mysql", &server) }, expected);
}

#[test]
fn errors_of_mysql_are_reasons() {
    let refusing = mysql_server(|stream, _| {
        stream.write_all(&packet(1, b"\xff\x7a\x04#42S02no such table")).unwrap();
    });
    failure(probe("mysql", &refusing), "the query failed: (1146) no such table");
    let blocking = stream_server(|mut stream| {
        stream.write_all(&packet(0, b"\xff\x69\x04Host is blocked")).unwrap();
    });
    failure(probe("mysql", &blocking), "cannot log in: (1129) Host is blocked");
    let large = stream_server(|mut stream| stream.write_all(b"HTTP/1.1 400").unwrap());
    failure(probe("mysql", &large), "a packet above 1 MiB; check the port");
    let closing = mysql_server(|_, _| {});
    failure(probe("mysql", &closing), "the query failed: the server closed the connection");
    let plain = stream_server(|mut stream| stream.write_all(&greeting()).unwrap());
    let secure = SqlProbe { secure: true, ..probe("mysql", &plain) };
    failure(secure, "the server has no TLS");
}

/// Writes until the client closes the connection.
fn write_endlessly(stream: &mut TcpStream, bytes: &[u8]) {
    let many = bytes.repeat((64 << 10) / bytes.len());
    loop {
        match stream.write_all(&many) {
            Ok(()) => {}
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
                return;
            }
        }
    }
}

#[test]
fn endless_results_end() {
    let expected = "the result exceeds 16 MiB; select less";
    let server = postgres_server(|stream, _| write_endlessly(stream, &row(&"x".repeat(200))));
    failure(probe("postgres", &server), expected);
    let server = mysql_server(|stream, _| {
        stream.write_all(&[packet(1, &[1]), packet(2, b"d"), packet(3, EOF)].concat()).unwrap();
        write_endlessly(stream, &packet(4, &[&[0xfc, 0, 4][..], &[b'x'; 1024]].concat()));
    });
    failure(probe("mysql", &server), expected);
    // A server that says nothing.
    for scheme in ["postgres", "mysql"] {
        let server = stream_server(|mut stream| _ = stream.read_to_end(&mut Vec::new()));
        let timeout = Duration::from_millis(100);
        let slow = CheckJobSettings { timeout, ..check(probe(scheme, &server)) };
        failure_of(slow, "no response within 100 ms");
    }
}
