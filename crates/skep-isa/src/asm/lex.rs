//! A line of text to its tokens.

use super::error::{AssembleError, AssembleProblem};

/// A place in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Position {
    pub(super) fn error(self, problem: AssembleProblem) -> AssembleError {
        AssembleError { line: self.line, column: self.column, problem }
    }
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name, a register, a keyword.
    Word,
    /// A number's magnitude.
    Number(u64),
    /// An operator or a bracket; which, says the text.
    Punct,
    /// Nothing follows in this line.
    End,
}

/// A token of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) position: Position,
}

/// Operators, longest first where one starts another.
const PUNCTS: [&str; 29] = [
    "<<=", ">>=", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "=", "<", ">", "&",
    "+", "-", "*", "(", ")", "[", "]", ",", ":", "#", "/",
];

/// The tokens of a line, [`Kind::End`] last. Comments are left out.
pub(super) fn tokens(text: &str, line: usize) -> Result<Vec<Token<'_>>, AssembleError> {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut rest = text;
    let mut column = 1;
    loop {
        let trimmed = rest.trim_start();
        column += rest[..rest.len() - trimmed.len()].chars().count();
        let touches_word = trimmed.len() == rest.len() && tokens.last().is_some_and(|t| t.kind == Kind::Word);
        rest = trimmed;
        let position = Position { line, column };
        let Some(first) = rest.chars().next() else {
            tokens.push(Token { kind: Kind::End, text: "", position });
            return Ok(tokens);
        };
        let name_mark = touches_word && rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        if rest.starts_with("//") || first == ';' || first == '#' && !name_mark {
            tokens.push(Token { kind: Kind::End, text: "", position });
            return Ok(tokens);
        }
        let (kind, length) = if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            match first.is_ascii_digit() {
                true => (Kind::Number(number(&rest[..length], position)?), length),
                false => (Kind::Word, length),
            }
        } else if let Some(punct) = PUNCTS.iter().find(|punct| rest.starts_with(**punct)) {
            (Kind::Punct, punct.len())
        } else {
            let expected = "an instruction in C-like syntax".to_owned();
            return Err(position.error(AssembleProblem::Unexpected { expected, found: format!("`{first}`") }));
        };
        let (text, tail) = rest.split_at(length);
        tokens.push(Token { kind, text, position });
        // Every character of a token is ASCII, so that bytes are columns.
        column += length;
        rest = tail;
    }
}

/// Whether names (and numbers) may hold that character.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')
}

fn number(text: &str, position: Position) -> Result<u64, AssembleError> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        let expected = "a decimal number or a hexadecimal one after 0x".to_owned();
        return Err(position.error(AssembleProblem::Unexpected { expected, found: format!("`{text}`") }));
    }
    u64::from_str_radix(digits, radix).map_err(|_| {
        position.error(AssembleProblem::NumberOutOfRange {
            number: text.to_owned(),
            what: "a 64-bit number",
            min: i64::MIN,
            max: u64::MAX,
            hint: "",
        })
    })
}
