//! The header equals the crate: this test generates `bindings/c/topdeck.h` from comments and
//! signatures in `handle.rs` and `abi.rs`, two pieces in C, and the layout of `shm`.
//! `cargo xtask golden` rewrites it. (cbindgen would write the declarations, but neither the table
//! nor the offsets of the fast path, and would be an additional tool.)

use expect_test::expect_file;
use hist::Integers;
use shm::layout;

const HANDLES: &str = include_str!("../../src/handle.rs");
const FUNCTIONS: &str = include_str!("../../src/abi.rs");
const OPENING: &str = include_str!("../../src/opening.h");
const FAST: &str = include_str!("../../src/fast.h");

#[test]
fn header_matches_the_code() {
    expect_file!["../../../../bindings/c/topdeck.h"].assert_eq(&header());
}

#[test]
fn unknown_types_are_rejected() {
    assert_eq!(c_type("*const *const c_char", "tags"), "const char *const *tags");
    assert_eq!(c_type("[u64; 4]", "words"), "uint64_t words[4]");
    assert!(std::panic::catch_unwind(|| c_type("Vec<u8>", "x")).is_err());
}

fn header() -> String {
    let mut text = OPENING.to_owned();
    for (number, role) in shm::MetricRole::ALL.iter().enumerate() {
        text += &format!("#define TD_ROLE_{} {number}\n", format!("{role:?}").to_uppercase());
    }
    text.push('\n');
    for (docs, item) in items(HANDLES, "#[repr(C)]\n", "\n}\n") {
        text += &structure(&docs, &item);
    }
    for (docs, item) in items(FUNCTIONS, "#[unsafe(no_mangle)]\n", " {\n") {
        text += &format!("{}{};\n\n", comment(&docs, ""), signature(&item));
    }
    text + &fast()
}

/// Items after each attribute, up to an end, with the lines of their comment.
fn items<'a>(
    source: &'a str,
    attribute: &str,
    end: &str,
) -> impl Iterator<Item = (Vec<&'a str>, String)> {
    source.match_indices(attribute).map(move |(at, _)| {
        let before: Vec<&str> = source[..at].lines().collect();
        let first = before.iter().rposition(|line| !line.starts_with("///")).map_or(0, |at| at + 1);
        let docs = before[first..].iter().map(|line| line[3..].trim()).collect();
        let item = &source[at + attribute.len()..];
        let item = item.split(end).next().expect("split gives one piece at least");
        (docs, item.to_owned())
    })
}

fn comment(docs: &[&str], indent: &str) -> String {
    assert!(!docs.is_empty(), "something in the header has no comment");
    match docs {
        [one] => format!("{indent}/* {one} */\n"),
        many => {
            let lines: String = many.iter().map(|line| format!("{indent} * {line}\n")).collect();
            format!("{indent}/*\n{lines}{indent} */\n")
        }
    }
}

fn structure(docs: &[&str], item: &str) -> String {
    let (head, fields) = item.split_once('{').expect("a structure");
    let name = c_name(head.split_whitespace().last().expect("its name"));
    let mut text = format!("{}typedef struct {name} {{\n", comment(docs, ""));
    let mut docs = Vec::new();
    for line in fields.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
            continue;
        }
        let field = line.strip_prefix("pub(crate) ").expect("a field").trim_end_matches(',');
        let (field, of) = field.split_once(": ").expect("name and type");
        text += &format!("{}    {};\n", comment(&docs, "    "), c_type(of, field));
        docs.clear();
    }
    text + &format!("}} {name};\n\n")
}

fn signature(item: &str) -> String {
    let item = item.strip_prefix("unsafe ").unwrap_or(item);
    let item = item.strip_prefix("extern \"C\" fn ").expect("a function");
    let (name, rest) = item.split_once('(').expect("its arguments");
    let (arguments, returns) = rest.rsplit_once(')').expect("their end");
    let arguments: Vec<String> = arguments
        .split(',')
        .map(str::trim)
        .filter(|argument| !argument.is_empty())
        .map(|argument| {
            let (name, of) = argument.split_once(": ").expect("name and type");
            c_type(of, name)
        })
        .collect();
    let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
    let returns = returns.trim().strip_prefix("-> ");
    c_type(returns.unwrap_or("()"), &format!("{name}({arguments})"))
}

/// A C declaration: type and name.
fn c_type(of: &str, name: &str) -> String {
    if let Some(of) = of.strip_prefix("*const ") {
        return pointer(of, "const ", name);
    }
    if let Some(of) = of.strip_prefix("*mut ") {
        return pointer(of, "", name);
    }
    if let Some((of, count)) =
        of.strip_prefix('[').and_then(|of| of.strip_suffix(']')?.split_once("; "))
    {
        return format!("{}[{count}]", c_type(of, name));
    }
    let word = match of {
        "()" => "void",
        "c_char" => "char",
        "c_int" => "int",
        "f64" => "double",
        "i64" => "int64_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        of if HANDLES.contains(&format!("struct {of} {{")) => {
            return format!("{} {name}", c_name(of));
        }
        of => panic!("what is {of} in C?"),
    };
    format!("{word} {name}")
}

fn pointer(of: &str, is_const: &str, name: &str) -> String {
    match of.starts_with('*') {
        // In C `const` follows what it qualifies: `const char *const *tags`.
        true => c_type(of, &format!("{is_const}*{name}")),
        false => format!("{is_const}{}", c_type(of, &format!("*{name}"))),
    }
}

/// `FloatGauge` is `td_float_gauge`.
fn c_name(name: &str) -> String {
    let mut text = "td".to_owned();
    for c in name.chars() {
        if c.is_uppercase() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

fn fast() -> String {
    let edges = edges();
    let rows = edges.chunks(4).map(|row| {
        let row: Vec<String> = row.iter().map(|edge| format!("{edge:#018x}")).collect();
        format!("    {},\n", row.join(", "))
    });
    // Buckets are indexed by the exponent bits of a double; index 0 is the bucket below that of
    // exponent 1.
    let bias = (1023 << layout::SCALE) - 1;
    let mut text = FAST
        .replace("@EDGES@", &rows.collect::<String>())
        .replace("@LAYOUT@", &layout::VERSION.to_string())
        .replace("@SCALE@", &layout::SCALE.to_string())
        .replace("@BIAS@", &bias.to_string());
    for (name, offset, _) in layout::HISTOGRAM {
        text = text.replace(&format!("@{name}@"), &offset.to_string());
    }
    assert!(!text.contains('@'), "something was not filled in");
    text
}

/// The table of `hist`, recomputed from the buckets of integers.
fn edges() -> Vec<u64> {
    const OCTAVE: u64 = 1 << 52;
    let first = Integers::<{ layout::SCALE }>::position(OCTAVE + 1);
    // Bucket of a mantissa: integers of this octave are doubles, and a bucket includes its upper
    // edge.
    let bucket =
        |mantissa: u64| Integers::<{ layout::SCALE }>::position(OCTAVE + mantissa + 1) - first;
    (0..64u64)
        .map(|cell| {
            let (start, end) = (cell << 46, (cell + 1) << 46);
            let (low, high) = (bucket(start), bucket(end - 1));
            // A cell has at most one edge: the first mantissa of the higher bucket.
            let (mut below, mut at) = (start, end - 1);
            while below + 1 < at && low < high {
                let middle = below + (at - below) / 2;
                if bucket(middle) == low { below = middle } else { at = middle }
            }
            match low < high && bucket(start) == low {
                true => ((high as u64) << 52) - at,
                false => (low as u64) << 52,
            }
        })
        .collect()
}
