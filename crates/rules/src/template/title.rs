//! The function `title`: the first letter of each word in title case, the rest as it is.
//!
//! A word is what Unicode's word boundaries (UAX 29) delimit, in the part that Go's package
//! `golang.org/x/text/cases` implements: letters, digits and underscores, and single dots,
//! colons and apostrophes between letters.

/// `text` with each word in title case.
pub(super) fn title(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut is_done = false;
    for (index, c) in chars.iter().enumerate() {
        if !continues_word(&chars, index) {
            is_done = false;
        }
        if !is_done && c.is_alphabetic() {
            is_done = true;
            match c {
                // The only letters whose title case differs from their upper case.
                'ǆ' | 'ǅ' | 'Ǆ' => out.push('ǅ'),
                'ß' => out.push_str("Ss"),
                _ => out.extend(c.to_uppercase()),
            }
        } else {
            out.push(*c);
        }
    }
    out
}

fn continues_word(chars: &[char], index: usize) -> bool {
    let is_word = |c: &char| c.is_alphanumeric() || *c == '_' || is_mark(*c);
    let is_middle = |c: &char| matches!(c, '.' | ':' | '\'' | '\u{2019}' | '\u{b7}');
    let Some(before) = index.checked_sub(1).map(|before| &chars[before]) else { return false };
    let (c, after) = (&chars[index], chars.get(index + 1));
    let before_that = index.checked_sub(2).map(|before| &chars[before]);
    match is_word(c) {
        true => is_word(before) || (is_middle(before) && before_that.is_some_and(is_word)),
        false => is_middle(c) && is_word(before) && after.is_some_and(is_word),
    }
}

fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}
