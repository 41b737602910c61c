// SPDX-License-Identifier: MIT OR Apache-2.0
//! From bytes to one line of words.

use reserv_model::{Error, ErrorKind, TEXT_MAX, quoted};

/// The one line in `bytes`, without its newline and the blanks around it. Refused: more than
/// [`TEXT_MAX`] bytes (`EMSGSIZE`), bytes that are no UTF-8 or a NUL (`EILSEQ`); nothing, a second
/// line or a control character other than the tab (`EINVAL`).
pub fn line(bytes: &[u8]) -> Result<&str, Error> {
    if bytes.len() > TEXT_MAX {
        let why = format!("{} bytes, at most {TEXT_MAX} are taken", bytes.len());
        return Err(Error::new(ErrorKind::TooLong, why));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text,
        Ok(_) => return Err(Error::new(ErrorKind::NotText, "a NUL in the text")),
        Err(e) => {
            let why = format!("byte {} of the text is no UTF-8", e.valid_up_to());
            return Err(Error::new(ErrorKind::NotText, why));
        }
    };
    let text = text.strip_suffix('\n').unwrap_or(text);
    if text.contains('\n') {
        return Err(
            Error::new(ErrorKind::Invalid, "more than one line").hint("write one line at a time")
        );
    }
    if let Some(c) = text.chars().find(|&c| c.is_control() && c != '\t') {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("a control character {}", quoted(&c.to_string())),
        ));
    }
    let text = text.trim_matches([' ', '\t']);
    if text.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "nothing was written"));
    }
    Ok(text)
}

/// The lines in `bytes`, at least one, under the same rules; empty ones are refused.
pub(crate) fn lines(bytes: &[u8]) -> Result<Vec<&str>, Error> {
    if bytes.len() > TEXT_MAX {
        return line(bytes).map(|_| Vec::new());
    }
    bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|&b| b == b'\n').map(line).collect()
}

/// The only word of a line; `what` and `hint` say what it should have been.
pub(crate) fn single<'a>(line: &'a str, what: &str, hint: &str) -> Result<&'a str, Error> {
    let mut words = line.split_ascii_whitespace();
    match (words.next(), words.next()) {
        (Some(word), None) => Ok(word),
        (_, Some(word)) => Err(surplus(word, what, hint)),
        (None, None) => {
            Err(Error::new(ErrorKind::Invalid, format!("nothing where {what} should be"))
                .hint(hint))
        }
    }
}

/// An error about a word that stands after the end.
pub(crate) fn surplus(word: &str, after: &str, hint: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} after {after}", quoted(word))).hint(hint)
}

/// A decimal number without sign, or an error that echoes the word.
pub(crate) fn number(word: &str, min: u32, max: u32, what: &str) -> Result<u32, Error> {
    let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let value = if digits { word.parse().ok() } else { None };
    value.filter(|v| (min..=max).contains(v)).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("{} is not {what}", quoted(word)))
            .hint(format!("{what} is a number from {min} to {max}"))
    })
}
