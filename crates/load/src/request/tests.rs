//! Sets of requests: what is drawn, and what is said of those that make no sense.

use std::path::Path;

use super::*;

fn parsed(text: &str) -> Result<Requests, RequestsError> {
    Requests::parse(text, Path::new("/nowhere"))
}

#[test]
fn a_set_is_drawn_by_its_weights_with_its_places_filled() {
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
    let mut random = Random::new(1);
    let mut counts = [0; 2];
    for _ in 0..10_000 {
        let one = requests.draw(&mut random);
        counts[one.index] += 1;
        if one.index == 0 {
            let id = &one.headers[0].1;
            assert!(["1", "2", "3"].contains(&id.as_str()));
            let expected = [format!("/items/{id}?q=a b"), format!("/items/{id}?q=c")];
            assert!(one.method == "GET" && expected.contains(&one.path), "{}", one.path);
        } else {
            let body = String::from_utf8(one.body.clone()).unwrap();
            assert!(one.method == "POST" && body.starts_with(r#"{"id": "#) && body.ends_with('}'));
        }
    }
    assert!((7_300..7_700).contains(&counts[0]), "{counts:?}");
}

#[test]
fn what_is_wrong_is_said() {
    let said = |text: &str| parsed(text).unwrap_err().to_string();
    assert!(said("").contains("there is no request"));
    assert!(said("[[request]]\npath = '/{who}'").contains("[variables] has no who"));
    assert!(said("[[request]]\npath = '/}'").contains("brace"));
    assert!(said("[[request]]\npath = '/{'").contains("brace"));
    assert!(said("[[request]]\nweight = 0").contains("above 0"));
    assert!(said("[[request]]\nweight = nan").contains("above 0"));
    let command = said("[[request]]\ncommand = ['a']\npath = '/'");
    assert!(command.contains("\"request 1: a\" has a command: beside it"), "{command}");
    assert!(said("[[request]]\npth = '/'").contains("pth"));
    assert!(said("[variables]\na = []\n[[request]]").contains("no value"));
    assert!(said("[variables]\na = { from = 2, to = 1 }\n[[request]]").contains("no value"));
    assert!(said("[[request]]\nbody-hex = '0 0 0'").contains("hexadecimal"));
    assert!(said("[[request]]\nbody-hex = 'no'").contains("hexadecimal"));
    assert!(said("[[request]]\nbody-file = 'x'").contains("/nowhere/x"));
    assert!(parsed("[variables]\na = { from = -9223372036854775808, to = 9223372036854775807 }\n[[request]]\npath='/{a}'").is_ok());
}

/// What the page shows is read.
#[test]
fn the_example_of_the_page_is_read() {
    const PAGE: &str = include_str!("../../../../docs/load.md");
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let requests = Requests::parse(text, std::path::Path::new("")).unwrap();
    assert_eq!(requests.names().collect::<Vec<_>>(), ["search", "/cart/{item}"]);
    let mut random = Random::new(1);
    let all: Vec<_> = (0..100).map(|_| requests.draw(&mut random)).collect();
    let posted = all.iter().find(|one| one.index == 1).unwrap();
    assert_eq!((posted.method.as_str(), &posted.body[..]), ("POST", &b"{\"count\": 1}"[..]));
    assert!(all.iter().any(|one| one.path == "/search?q=hat"));
}

#[test]
fn a_body_may_be_any_bytes() {
    let requests = parsed("[[request]]\nbody-hex = '00 fF{}'".replace("{}", "\t80").as_str());
    let one = requests.unwrap().draw(&mut Random::new(1));
    assert_eq!((one.method.as_str(), &one.body[..]), ("POST", &[0, 0xff, 0x80][..]));
    let folder = std::env::temp_dir();
    let name = format!("topdeck-body-{}", std::process::id());
    std::fs::write(folder.join(&name), [b'{', 0xfe]).unwrap();
    let requests = Requests::parse(&format!("[[request]]\nbody-file = '{name}'"), &folder);
    let one = requests.unwrap().draw(&mut Random::new(1));
    std::fs::remove_file(folder.join(&name)).unwrap();
    assert_eq!(one.body, [b'{', 0xfe]);
}
