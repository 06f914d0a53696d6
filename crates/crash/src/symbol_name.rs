//! Names of functions without what differs between builds: hashes, template arguments, addresses.
//!
//! Mangled names of C++ (Itanium ABI) and Rust (legacy and v0, RFC 2603) are read as far as a path
//! goes. What is not understood stays as it is: the name is still the same in each build.

/// Nested parts of a name that are read; a name with deeper ones stays as it is.
const DEPTH_MAX: u32 = 32;
/// Parts of a name in Rust's v0 form that are read. A back reference is read each time it is met,
/// so without a limit the time is exponential in the length; names of compilers have some dozens.
const STEPS_MAX: u32 = 1_000;
/// Longest name in words, in bytes: a longer one is cut.
const READABLE_BYTES_MAX: usize = 256;

/// Name of a function in words.
pub(crate) fn readable(name: &str) -> String {
    let mut read = whole_name(name);
    read.truncate(read.floor_char_boundary(READABLE_BYTES_MAX));
    read
}

fn whole_name(name: &str) -> String {
    // Copies of a function that optimisations make: `f.constprop.0`, `f.llvm.123`.
    let name = name.split('@').next().unwrap_or(name);
    let name = match name.find(['.']) {
        Some(at) if at > 0 && !name.contains('/') && has_suffix_of_copy(&name[at..]) => &name[..at],
        _ => name,
    };
    let read = name
        .strip_prefix("_ZN")
        .map(nested_path)
        .or_else(|| name.strip_prefix("_Z").map(|rest| identifier(rest).map(|it| it.0.to_owned())))
        .or_else(|| name.strip_prefix("_R").map(|rest| V0::new(rest).path(0)))
        .flatten();
    read.filter(|read| !read.is_empty()).unwrap_or_else(|| name.to_owned())
}

fn has_suffix_of_copy(suffix: &str) -> bool {
    const COPIES: [&str; 6] = [".constprop", ".isra", ".part", ".cold", ".llvm", ".lto_priv"];
    COPIES.iter().any(|copy| suffix.starts_with(copy))
}

/// `3foo` and the rest.
fn identifier(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let length: usize = text[..digits].parse().ok()?;
    let rest = &text[digits..];
    (length > 0 && rest.is_char_boundary(length)).then(|| rest.split_at_checked(length)).flatten()
}

/// `3foo3bar17h0123456789abcdefE`, of C++ or Rust.
fn nested_path(text: &str) -> Option<String> {
    let mut rest = text.trim_start_matches(['K', 'V', 'r', 'R', 'O']);
    if let Some(after) = rest.strip_prefix("St") {
        rest = after;
    }
    let mut path: Vec<String> = Vec::new();
    while let Some((part, after)) = identifier(rest) {
        rest = after;
        let hash = part.strip_prefix('h').filter(|hash| {
            part.len() == 17
                && rest.starts_with('E')
                && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        if hash.is_none() {
            path.push(unescape(part));
        }
        if rest.starts_with('I') {
            let Some(after) = template_end(rest) else { break };
            rest = after;
        }
    }
    // Constructors, destructors and the commonest operator.
    match rest.as_bytes() {
        [b'C', b'0'..=b'9', ..] => path.push(path.last()?.clone()),
        [b'D', b'0'..=b'9', ..] => path.push(format!("~{}", path.last()?)),
        [b'c', b'l', ..] => path.push("operator()".to_owned()),
        _ => {}
    }
    Some(path.join("::"))
}

/// What follows template arguments, if these are only names and basic types.
fn template_end(text: &str) -> Option<&str> {
    let (mut rest, mut depth) = (text, 0u32);
    loop {
        let first = *rest.as_bytes().first()?;
        if first.is_ascii_digit() {
            rest = identifier(rest)?.1;
            continue;
        }
        rest = rest.get(1..)?;
        match first {
            b'I' | b'N' | b'J' | b'X' => depth += 1,
            b'S' => rest = after_substitution(rest)?,
            b'L' => rest = rest.get(rest.find('E')? + 1..)?,
            b'E' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(rest);
        }
    }
}

/// What follows `S`: `t`, or a number in base 36 and `_`.
fn after_substitution(text: &str) -> Option<&str> {
    match text.as_bytes().first()? {
        b'a'..=b'z' => text.get(1..),
        _ => text.split_once('_').map(|(_, rest)| rest),
    }
}

/// `$LT$` and the like of Rust's legacy names.
fn unescape(part: &str) -> String {
    let mut text = part.trim_start_matches("_$").to_owned();
    if text.len() < part.len() {
        text.insert(0, '$');
    }
    const ESCAPES: [(&str, &str); 10] = [
        ("$LT$", "<"),
        ("$GT$", ">"),
        ("$RF$", "&"),
        ("$BP$", "*"),
        ("$u20$", " "),
        ("$u7b$", "{"),
        ("$u7d$", "}"),
        ("$LP$", "("),
        ("$RP$", ")"),
        ("$C$", ","),
    ];
    for (escape, plain) in ESCAPES {
        text = text.replace(escape, plain);
    }
    text.replace("..", "::")
}

/// Rust's v0 names: paths without disambiguators and generic arguments.
struct V0<'a> {
    whole: &'a str,
    rest: &'a str,
    steps_left: u32,
}

impl<'a> V0<'a> {
    fn new(text: &'a str) -> V0<'a> {
        V0 { whole: text, rest: text, steps_left: STEPS_MAX }
    }

    fn next(&mut self) -> Option<u8> {
        let first = *self.rest.as_bytes().first()?;
        self.rest = self.rest.get(1..)?;
        Some(first)
    }

    /// Counts a part; `None` beyond a limit.
    fn step(&mut self, depth: u32) -> Option<()> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        (depth <= DEPTH_MAX).then_some(())
    }

    /// Cut as the whole is, because parts are repeated.
    fn joined(parts: &[&str]) -> String {
        let mut text = parts.concat();
        text.truncate(text.floor_char_boundary(READABLE_BYTES_MAX));
        text
    }

    fn path(&mut self, depth: u32) -> Option<String> {
        self.step(depth)?;
        match self.next()? {
            b'C' => self.identifier(),
            b'N' => {
                let namespace = self.next()?;
                let (outer, name) = (self.path(depth + 1)?, self.identifier()?);
                Some(match (namespace, name.as_str()) {
                    (b'C', _) => V0::joined(&[&outer, "::{closure}"]),
                    (_, "") => outer,
                    _ => V0::joined(&[&outer, "::", &name]),
                })
            }
            b'M' => {
                self.disambiguator();
                self.path(depth + 1)?;
                self.type_name(depth + 1).map(|name| V0::joined(&["<", &name, ">"]))
            }
            b'X' => {
                self.disambiguator();
                self.path(depth + 1)?;
                self.trait_path(depth)
            }
            b'Y' => self.trait_path(depth),
            b'I' => {
                let path = self.path(depth + 1)?;
                while !self.rest.starts_with('E') {
                    if self.rest.starts_with('L') {
                        self.next()?;
                        self.base_62()?;
                    } else if self.rest.starts_with('K') {
                        // Constants are not read; what follows neither.
                        return Some(path);
                    } else {
                        self.type_name(depth + 1)?;
                    }
                }
                self.next()?;
                Some(path)
            }
            b'B' => self.back_reference(depth, V0::path),
            _ => None,
        }
    }

    fn trait_path(&mut self, depth: u32) -> Option<String> {
        let (of, name) = (self.type_name(depth + 1)?, self.path(depth + 1)?);
        Some(V0::joined(&["<", &of, " as ", &name, ">"]))
    }

    fn type_name(&mut self, depth: u32) -> Option<String> {
        self.step(depth)?;
        match *self.rest.as_bytes().first()? {
            b'C' | b'N' | b'M' | b'X' | b'Y' | b'I' => self.path(depth),
            b'B' => {
                self.next()?;
                self.back_reference(depth, V0::type_name)
            }
            b'R' | b'Q' | b'P' | b'O' | b'S' => {
                self.next()?;
                if self.rest.starts_with('L') {
                    self.next()?;
                    self.base_62()?;
                }
                self.type_name(depth + 1).map(|of| V0::joined(&["&", &of]))
            }
            b'T' => {
                self.next()?;
                while !self.rest.starts_with('E') {
                    self.type_name(depth + 1)?;
                }
                self.next().map(|_| "(..)".to_owned())
            }
            byte if byte.is_ascii_lowercase() => self.next().map(|_| "_".to_owned()),
            _ => None,
        }
    }

    /// Reads what an earlier position has.
    fn back_reference(
        &mut self,
        depth: u32,
        read: fn(&mut V0<'a>, u32) -> Option<String>,
    ) -> Option<String> {
        let at = usize::try_from(self.base_62()?).ok()?;
        // Earlier, or the reading would not end.
        let here = self.whole.len() - self.rest.len();
        let rest = self.whole.get(at..).filter(|_| at < here)?;
        let mut earlier = V0 { whole: self.whole, rest, steps_left: self.steps_left };
        let read = read(&mut earlier, depth + 1);
        self.steps_left = earlier.steps_left;
        read
    }

    fn disambiguator(&mut self) {
        if self.rest.starts_with('s') {
            self.next();
            self.base_62();
        }
    }

    /// `_` is 0, `0_` is 1.
    fn base_62(&mut self) -> Option<u64> {
        let (digits, rest) = self.rest.split_once('_')?;
        self.rest = rest;
        let mut value = 0u64;
        for digit in digits.bytes() {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'z' => digit - b'a' + 10,
                b'A'..=b'Z' => digit - b'A' + 36,
                _ => return None,
            };
            value = value.checked_mul(62)?.checked_add(digit.into())?;
        }
        if digits.is_empty() { Some(0) } else { value.checked_add(1) }
    }

    fn identifier(&mut self) -> Option<String> {
        self.disambiguator();
        // Punycode: rare, and the same in each build.
        self.rest = self.rest.strip_prefix('u').unwrap_or(self.rest);
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let length: usize = self.rest[..digits].parse().ok()?;
        let rest = &self.rest[digits..];
        let rest = rest.strip_prefix('_').unwrap_or(rest);
        let (name, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mangled: &str, expected: &str) {
        assert_eq!(readable(mangled), expected);
    }

    #[test]
    fn c_names_lose_the_suffixes_of_copies() {
        check("handle_request", "handle_request");
        check("parse.constprop.0", "parse");
        check("parse.part.3.cold", "parse");
        check("memcpy@@GLIBC_2.14", "memcpy");
        check("runtime.gopanic", "runtime.gopanic");
        check("main.(*Shop).Buy", "main.(*Shop).Buy");
    }

    #[test]
    fn names_of_cpp() {
        check("_ZN4shop5Order3payEi", "shop::Order::pay");
        check("_ZNK4shop5Order5totalEv", "shop::Order::total");
        check("_ZN4shop5OrderC2Ev", "shop::Order::Order");
        check("_ZN4shop5OrderD1Ev", "shop::Order::~Order");
        check("_Z7do_workiPKc", "do_work");
        check("_ZN4shop4ListIiE4pushEi", "shop::List::push");
        check("_ZN4shop4ListINS_5OrderEE4pushERKS1_", "shop::List::push");
        check("_ZZ4mainENKUlvE_clEv", "_ZZ4mainENKUlvE_clEv");
    }

    #[test]
    fn names_of_rust() {
        check("_ZN4shop5order3pay17h0123456789abcdefE", "shop::order::pay");
        let trait_method =
            "_ZN50_$LT$shop..Order$u20$as$u20$core..fmt..Display$GT$3fmt17hfedcba9876543210E";
        check(trait_method, "<shop::Order as core::fmt::Display>::fmt");
        check("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar");
        check("_RNCNvCs1_4shop3pay0B3_", "shop::pay::{closure}");
        check("_RINvCs1_4shop3payNtB2_5OrderEB2_", "shop::pay");
        check("_RNvMNtCs1_4shop5orderNtB2_5Order3pay", "<shop::order::Order>::pay");
        check(
            "_RNvXCs1_4shopNtB2_5OrderNtNtCs2_4core3fmt7Display3fmt",
            "<shop::Order as core::fmt::Display>::fmt",
        );
    }

    /// Each tuple reads the one before it eight times: without a limit, 8^12 parts.
    #[test]
    fn repeated_back_references_end() {
        let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let number = |value: usize| {
            let (high, low) = ((value - 1) / 62, (value - 1) % 62);
            let high = if high == 0 { String::new() } else { char::from(digits[high]).into() };
            format!("{high}{}_", char::from(digits[low]))
        };
        let mut name = "INvC1a1b".to_owned();
        let mut before = name.len();
        name.push_str("TaaE");
        for _ in 0..12 {
            let at = name.len();
            name.push_str(&format!("T{}E", format!("B{}", number(before)).repeat(8)));
            before = at;
        }
        name.push('E');
        let mut read = V0::new(&name);
        assert_eq!((read.path(0), read.steps_left), (None, 0));
        let name = format!("_R{name}");
        assert_eq!(readable(&name), name[..name.len().min(READABLE_BYTES_MAX)]);
    }

    #[test]
    fn long_names_are_cut() {
        let long = "é".repeat(1_000);
        for name in [&long, &format!("_ZN2000{long}E"), &format!("_RNvC1s2000_{long}")] {
            assert!((200..=256).contains(&readable(name).len()));
        }
        // Each level names the one before twice.
        let mut nested = "_RY".to_owned();
        nested.push_str(&"Y".repeat(20));
        nested.push_str(&"C3foo".repeat(22));
        assert!(readable(&nested).len() <= 256);
    }

    #[test]
    fn anything_else_stays() {
        for name in ["", "_R", "_Z", "_ZN", "_ZN99999999999999999999x", "_RB0_", "_RNvB_1a", "ü"] {
            readable(name);
        }
        check("_RB0_", "_RB0_");
        check("?", "?");
    }
}
