//! Parsing and sampling of requests, and errors.

use std::path::Path;

use super::*;

fn parsed(text: &str) -> Result<Requests, RequestsError> {
    Requests::parse(text, Path::new("/nowhere"))
}

#[test]
fn requests_are_sampled_by_weight_with_variables() {
    let text = r#"
        [variables]
        id = { from = 1, to = 3 }
        word = ["a b", "c"]

        [[request]]
        name = "read"
        weight = 3
        path = "/items/{id}?q={word}"
        headers = { x-id = "{id}" }

        [[request]]
        name = "write"
        path = "/items"
        body = '{{"id": {id}}}'
    "#;
    let requests = parsed(text).unwrap();
    assert_eq!(requests.names().collect::<Vec<_>>(), ["read", "write"]);
    let mut random = SplitMix64::new(1);
    let mut counts = [0; 2];
    for _ in 0..10_000 {
        let one = requests.sample(&mut random);
        counts[one.index] += 1;
        if one.index == 0 {
            let id = &one.headers[0].1;
            assert!(["1", "2", "3"].contains(&id.as_str()));
            let expected = [format!("/items/{id}?q=a%20b"), format!("/items/{id}?q=c")];
            assert!(one.method == "GET" && expected.contains(&one.path), "{}", one.path);
        } else {
            let body = String::from_utf8(one.body.clone()).unwrap();
            assert!(one.method == "POST" && body.starts_with(r#"{"id": "#) && body.ends_with('}'));
        }
    }
    assert!((7_300..7_700).contains(&counts[0]), "{counts:?}");
}

#[test]
fn invalid_requests_files_are_rejected() {
    let error_for = |text: &str| parsed(text).unwrap_err().to_string();
    assert!(error_for("").contains("no requests"));
    assert!(error_for("[[request]]\npath = '/{who}'").contains("declare who in [variables]"));
    assert!(error_for("[[request]]\npath = '/}'").contains("brace"));
    assert!(error_for("[[request]]\npath = '/{'").contains("brace"));
    assert!(error_for("[[request]]\nweight = 0").contains("above 0"));
    assert!(error_for("[[request]]\nweight = nan").contains("above 0"));
    let heavy = "[[request]]\nname = 'a'\nweight = 1e308\n".repeat(2);
    assert!(error_for(&heavy).contains("their sum"), "{}", error_for(&heavy));
    let command = error_for("[[request]]\ncommand = ['a']\npath = '/'");
    assert!(command.contains("\"request 1: a\" has a command, which"), "{command}");
    assert!(error_for("[[request]]\nbody = 'a'\nbody-hex = '00'").contains("keep one"));
    assert!(error_for("[[request]]\npth = '/'").contains("pth"));
    assert!(error_for("[variables]\na = []\n[[request]]").contains("no value"));
    assert!(error_for("[variables]\na = { from = 2, to = 1 }\n[[request]]").contains("no value"));
    assert!(error_for("[[request]]\nbody-hex = '0 0 0'").contains("body-hex"));
    assert!(error_for("[[request]]\nbody-hex = 'no'").contains("body-hex"));
    assert!(error_for("[[request]]\nbody-file = 'x'").contains("/nowhere/x"));
    assert!(parsed("[variables]\na = \
                    { from = -9223372036854775808, to = 9223372036854775807 }\n[[request]]\npath='/{a}'").is_ok());
}

/// The example of docs/load.md is valid.
#[test]
fn documented_example_is_valid() {
    const PAGE: &str = include_str!("../../../../docs/load.md");
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let requests = Requests::parse(text, std::path::Path::new("")).unwrap();
    assert_eq!(requests.names().collect::<Vec<_>>(), ["search", "/cart/{item}"]);
    let mut random = SplitMix64::new(1);
    let all: Vec<_> = (0..100).map(|_| requests.sample(&mut random)).collect();
    let posted = all.iter().find(|one| one.index == 1).unwrap();
    assert_eq!((posted.method.as_str(), &posted.body[..]), ("POST", &b"{\"count\": 1}"[..]));
    assert!(all.iter().any(|one| one.path == "/search?q=hat"));
}

#[test]
fn bodies_may_be_binary() {
    let requests = parsed("[[request]]\nbody-hex = '00 fF{}'".replace("{}", "\t80").as_str());
    let one = requests.unwrap().sample(&mut SplitMix64::new(1));
    assert_eq!((one.method.as_str(), &one.body[..]), ("POST", &[0, 0xff, 0x80][..]));
    let dir = std::env::temp_dir();
    let name = format!("topdeck-body-{}", std::process::id());
    std::fs::write(dir.join(&name), [b'{', 0xfe]).unwrap();
    let requests = Requests::parse(&format!("[[request]]\nbody-file = '{name}'"), &dir);
    let one = requests.unwrap().sample(&mut SplitMix64::new(1));
    std::fs::remove_file(dir.join(&name)).unwrap();
    assert_eq!(one.body, [b'{', 0xfe]);
}

/// Unrepresentable requests are errors before the run, with the request and the value.
#[test]
fn unrepresentable_requests_are_rejected() {
    #[track_caller]
    fn check(target: &str, text: &str, expected: &str) {
        let (target, _) = crate::target::Target::parse(target).unwrap();
        let found = parsed(text).unwrap().check(Some(&target));
        let found = found.map_or_else(|error| error.to_string(), |()| String::new());
        let is_so = if expected.is_empty() { found.is_empty() } else { found.contains(expected) };
        assert!(is_so, "{text}: {found:?}");
    }
    let [http, h2, grpc] = ["http://a", "h2c://a", "grpc://a"];
    let [echo, postgres, redis] = ["tcp://a:1", "postgres://a", "redis://a"];
    for target in [http, h2] {
        check(target, "[[request]]\nheaders = { a = 'b' }\npath = '/a?b'", "");
        check(target, "[[request]]\nname = 'x'\nmethod = 'GET /'", "request \"x\": method");
        check(target, "[[request]]\nheaders = { 'a b' = 'c' }", "invalid header name \"a b\"");
        check(target, "[[request]]\nheaders = { a = \"b\\r\\nc\" }", "header a");
        check(target, "[[request]]\nheaders = { Transfer-Encoding = 'chunked' }", "Transfer-");
        check(target, "[[request]]\narguments = ['a']", "arguments");
        check(target, "[[request]]\npath = 'a'", "does not start with /");
        check(
            target,
            "[variables]\nw = ['a', \"b\\n\"]\n[[request]]\nheaders = { x = '{w}' }",
            "with w = \"b\\n\"",
        );
        check(
            target,
            "[variables]\nn = { from = -1, to = 2 }\n[[request]]\npath = '/{n}'\nbody = '{n}'",
            "",
        );
    }
    check(
        http,
        "[variables]\nw = ['a', \"b\\u007f\"]\nv = ['d']\n[[request]]\nheaders = { x = '{v}{w}' }",
        "with v = \"d\", with w = ",
    );
    check(http, "[[request]]\nheaders = { Connection = 'close' }", "");
    check(http, "[[request]]\nbody = 'abc'\nheaders = { Content-Length = '4' }", "has 3 bytes");
    check(
        http,
        "[variables]\nw = ['abcd', 'abc']\n[[request]]\nbody = '{w}'\nheaders = \
         { content-length = '4' }",
        "has 3 bytes, with w = \"abc\"",
    );
    check(h2, "[[request]]\nheaders = { Connection = 'close' }", "not allowed in HTTP/2");
    check(h2, "[[request]]\nheaders = { te = 'gzip' }", "not allowed in HTTP/2");
    check(h2, "[[request]]\nheaders = { te = 'trailers', host = 'b' }", "");
    check(h2, "[[request]]\nheaders = { host = 'a b' }", "header host");
    check(grpc, "[[request]]\npath = '/a.B/C'", "");
    check(grpc, "[[request]]\npath = '/a.B'", "/package.Service/Method");
    check(echo, "[[request]]\nbody-hex = '00'", "");
    check(echo, "[[request]]\nheaders = { a = 'b' }", "headers");
    check(postgres, "[[request]]\nsql = 'select $1'\narguments = ['']", "");
    check(postgres, "[[request]]\nsql = \"select 'a\\u0000'\"", "a NUL at byte 9");
    check(postgres, "[[request]]\nbody-hex = 'ff'", "not valid UTF-8");
    check(postgres, "[[request]]\nheaders = { a = 'b' }", "headers");
    let many = "'a',".repeat(65_536);
    check(postgres, &format!("[[request]]\narguments = [{many}]"), "65536 parameters");
    check(redis, "[[request]]", "");
    check(redis, "[[request]]\nbody = 'GET a'", "");
    check(redis, "[[request]]\narguments = ['GET', '']", "");
    check(redis, "[[request]]\narguments = ['']", "command name is empty");
    check(redis, "[variables]\nw = ['a', ' ']\n[[request]]\nbody = '{w}'", "contains no command");
    check(redis, "[[request]]\nbody = 'a'\narguments = ['a']", "one of them");
}
