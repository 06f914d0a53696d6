//! Past fuzz findings, seeds of the fuzz corpus, and a short run of the checks on arbitrary bytes.

use proptest::prelude::*;

use crate::checks::{self, CANCEL, SEND};
use crate::fuzz_inputs;

/// `testdata/fuzz/<target>/<finding>`.
#[test]
fn regressions_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

#[test]
fn seeds_pass() {
    for (target, name, bytes) in seeds() {
        let check = checks::CHECKS.iter().find(|check| check.0 == target).unwrap().1;
        println!("{target} {name}");
        check(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for (_, check) in checks::CHECKS {
            check(&bytes);
        }
    }

    /// A seed with some bytes changed, and truncated.
    #[test]
    fn mutated_seeds_pass(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let seeds = seeds();
        let (target, _, mut bytes) = which.get(&seeds).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        let check = checks::CHECKS.iter().find(|check| check.0 == target).unwrap().1;
        check(&bytes);
    }
}

/// Run by the fuzz part: without seeds a fuzzer spends its minute on magic numbers.
#[test]
#[ignore = "writes fuzz/corpus/, for the fuzz part alone"]
fn write_seeds() {
    let seeds: Vec<_> = seeds().into_iter().map(|(target, _, bytes)| (target, bytes)).collect();
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds);
}

/// Per protocol, the server's side of three requests; one is sent after this many bytes.
fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let frame = |kind: u8, flags: u8, stream: u8, contents: &[u8]| {
        [&[0, 0, contents.len() as u8, kind, flags, 0, 0, 0, stream], contents].concat()
    };
    let data = |stream, contents: &[u8]| frame(0, 0, stream, contents);
    let head = |flags, stream| frame(1, flags, stream, &[0x88]);
    let grpc_status = |text: &str| [&[0, 11], &b"grpc-status"[..], &[1], text.as_bytes()].concat();
    let settings = frame(4, 0, 0, &[0, 3, 0, 0, 0, 50]);
    let (ping, window) = (frame(6, 0, 0, &[7; 8]), frame(8, 0, 0, &[0, 0, 1, 0]));
    let (reset, end) = (frame(3, 0, 3, &[0, 0, 0, 2]), frame(7, 0, 0, &[0; 8]));
    let two =
        [&settings[..], &head(4, 1), &data(1, b"ab"), &ping, &window, &head(5, 5), &reset, &end];
    let call = [
        &settings[..],
        &head(4, 1),
        &data(1, b"\0\0\0\0\x01a"),
        &frame(1, 5, 1, &grpc_status("0")),
        &frame(1, 5, 3, &[&[0x88][..], &grpc_status("5")].concat()),
    ];
    let said = |kind: u8, contents: &[u8]| {
        [&[kind][..], &(contents.len() as u32 + 4).to_be_bytes(), contents].concat()
    };
    let login = [said(b'R', &[0; 4]), said(b'S', b"a\0b\0"), said(b'K', &[1; 8]), said(b'Z', b"I")];
    let md5 = [&said(b'R', &[0, 0, 0, 5, 1, 2, 3, 4])[..], &login.concat()].concat();
    let rows =
        [said(b'T', b"\0\0"), said(b'D', &[3; 20]), said(b'C', b"SELECT 1\0"), said(b'Z', b"I")];
    let prepared = [said(b'1', b""), said(b'2', b""), said(b'C', b"a\0"), said(b'Z', b"I")];
    let wrong = [said(b'N', b"\0"), said(b'E', b"SERROR\0\0"), said(b'Z', b"E")].concat();
    let copied = [said(b'G', b"\0\0\0"), wrong.clone()].concat();
    let queries = [login.concat(), rows.concat(), wrong, copied].concat();
    let scram = [&b"\0\0\0\x0aSCRAM-SHA-256\0\0"[..]].map(|ways| said(b'R', ways)).concat();
    let codecs: [(u8, &str, Vec<u8>); 13] = [
        (0, "length", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".repeat(3)),
        (
            0,
            "chunks",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\ntransfer-encoding: \
                        chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\na: b\r\n\r\n"
                .to_vec(),
        ),
        (0, "until closed", b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello".to_vec()),
        (1, "two", two.concat()),
        (2, "call", call.concat()),
        (3, "echo", b"\nselect 1select $1".to_vec()),
        (4, "queries", queries.clone()),
        (5, "md5", [&md5[..], &prepared.concat(), &prepared.concat()].concat()),
        (5, "scram", scram),
        (6, "replies", b"+PONG\r\n$3\r\nabc\r\n*2\r\n:1\r\n*-1\r\n-ERR a\r\n".to_vec()),
        (
            6,
            "third",
            b">1\r\n+a\r\n|1\r\n+a\r\n+b\r\n%1\r\n+a\r\n~1\r\n#t\r\n_\r\n=5\r\ntxt:a\r\n".to_vec(),
        ),
        (7, "selected", b"+OK\r\n+OK\r\n$-1\r\n".to_vec()),
        (8, "refused", b"-WRONGPASS a\r\n".to_vec()),
    ];
    // Requests sent at once, between fragments, and after the opening.
    let plans: [&[u8]; 3] = [
        &[SEND, SEND | 1, SEND | 2, 3, CANCEL | 1, 0x40],
        &[0x40 | 20, SEND, 5, SEND | 1, 0x1f, SEND | 2],
        &[0x41, SEND | 2, 0x41, SEND | 5, 0x41, SEND],
    ];
    let mut all = Vec::new();
    for (target, name, said) in codecs {
        for (number, plan) in plans.iter().enumerate() {
            let bytes = [&[target, plan.len() as u8][..], plan, &said].concat();
            all.push(("load_codec", format!("{target} {name} {number}"), bytes));
        }
    }
    let requests = "[[request]]\nname = \"a\"\nweight = 9\npath = \"/a?b={c}\"\nheaders = \
                    { A = \"{d}\" }\narguments = [\"{c}\"]\n[[request]]\nmethod = \"PUT\"\nbody = \
                    \"{{{c}}}\"\n[[request]]\nbody-hex = \"00 ff\"\n[[request]]\nsql = \"select \
                    1\"\n[variables]\nc = [\"e\", \"f\"]\nd = { from = -1, to = 5000 }\n";
    let texts = [
        (0, "https://a.b:8443/c?d=e#f"),
        (0, "postgresql://me@[::1]:1/b%20c?prepared=true"),
        (0, "redis://u:p%40@h/3"),
        (0, "grpcs://h/a.B/C"),
        (1, "# a day\n0\n0.5\n10ms\n1.000000001s\n1min\n0.5h\n"),
        (1, "-1\n1794182400.000000001\n1794182400000000003ns\n"),
        (2, "p99.9<20ms"),
        (2, "service.max<=1.5s"),
        (2, "failed<0.1%"),
        (2, "rate>=990/s"),
        (2, "mean < 5 us"),
        (3, requests),
    ];
    for (at, (kind, text)) in texts.into_iter().enumerate() {
        all.push(("load_text", format!("{kind} {at}"), [&[kind][..], text.as_bytes()].concat()));
    }
    all
}
