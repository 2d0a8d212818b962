//! Text to layers.
//!
//! ```text
//!   packet   = part { "/" part }
//!   part     = name [ "(" [ field { "," field } ] ")" ] | '"' text '"' | "hex(" digits ")"
//!            | "zeros(" number ")" | "pad(" digits ")" | "cut(" number ")"
//!   field    = name "=" value
//! ```
//!
//! Spaces and line ends may be between words. A value ends at the comma or parenthesis outside of its own brackets.

use crate::error::{Error, nearest};
use crate::frame::{Frame, Item, Layer, tail_name};
use crate::layers::{self, LayerDef, Tail};
use crate::limits::{MAX_BYTES, MAX_LAYERS};
use crate::options;
use crate::value;

impl Frame {
    /// Reads a packet's text.
    ///
    /// # Errors
    ///
    /// [`Error`], with the column.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut reader = Reader { letters: text.chars().collect(), at: 0 };
        let mut items = Vec::new();
        let mut bytes = 0;
        loop {
            reader.space();
            let column = reader.column();
            let item = reader.part()?;
            bytes += match &item {
                Item::Layer(layer) => layer.def.bytes + layer.tail.len(),
                Item::Bytes(bytes) | Item::Pad(bytes) => bytes.len(),
                Item::Cut(_) => 0,
            };
            if bytes > MAX_BYTES {
                return Err(Error::TooLong { column, bytes });
            }
            items.push(item);
            if items.len() > MAX_LAYERS {
                return Err(Error::TooDeep { column });
            }
            reader.space();
            let ended = matches!(items.last(), Some(Item::Pad(_) | Item::Cut(_)));
            match reader.peek() {
                None => return Ok(Self { items }),
                Some('/') if !ended => reader.at += 1,
                Some('/') if reader.rest_begins("/", "cut") => reader.at += 1,
                _ if ended => return Err(reader.expected("the end: pad and cut come last")),
                _ => return Err(reader.expected("`/` and the next layer, or the end")),
            }
        }
    }
}

struct Reader {
    letters: Vec<char>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn column(&self) -> usize {
        self.at + 1
    }

    fn space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    /// Whether a word follows, behind a mark and spaces.
    fn rest_begins(&self, mark: &str, word: &str) -> bool {
        let rest: String = self.letters[self.at..].iter().take(64).collect();
        rest.strip_prefix(mark).is_some_and(|rest| rest.trim_start().starts_with(word))
    }

    fn expected(&self, expected: &'static str) -> Error {
        let found: String = self.letters[self.at..].iter().take(16).collect();
        let found = if found.is_empty() { "the end".to_owned() } else { format!("{found:?}") };
        Error::Expected { column: self.column(), expected, found }
    }

    fn take(&mut self, letter: char, expected: &'static str) -> Result<(), Error> {
        self.space();
        if self.peek() != Some(letter) {
            return Err(self.expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, expected: &'static str) -> Result<String, Error> {
        self.space();
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.at += 1;
        }
        if start == self.at {
            return Err(self.expected(expected));
        }
        Ok(self.letters[start..self.at].iter().collect())
    }

    /// Everything up to a comma, or the parenthesis that ends the fields.
    fn value(&mut self) -> (usize, String) {
        self.space();
        let (start, mut depth) = (self.at, 0i32);
        while let Some(letter) = self.peek() {
            match letter {
                '(' | '[' => depth += 1,
                ')' | ']' if depth > 0 => depth -= 1,
                ')' => break,
                ',' if depth == 0 => break,
                _ => {}
            }
            self.at += 1;
        }
        let text: String = self.letters[start..self.at].iter().collect();
        (start + 1, text.trim_end().to_owned())
    }

    fn part(&mut self) -> Result<Item, Error> {
        if self.peek() == Some('"') {
            return self.quoted().map(Item::Bytes);
        }
        let column = self.column();
        let name = self.word("a layer, text in quotes, or hex(...)")?;
        match &*name {
            "hex" => self.bytes().map(Item::Bytes),
            "pad" => self.bytes().map(Item::Pad),
            "zeros" => self.count().map(|count| Item::Bytes(vec![0; count])),
            "cut" => self.count().map(Item::Cut),
            _ => self.layer(column, name).map(Item::Layer),
        }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        self.take('(', "`(` and hexadecimal digits")?;
        let (column, text) = self.value();
        let bytes = value::unhex(&text).ok_or_else(|| Error::Expected {
            column,
            expected: "an even number of hexadecimal digits",
            found: format!("{:?}", text.chars().take(16).collect::<String>()),
        })?;
        self.take(')', "`)`")?;
        Ok(bytes)
    }

    fn count(&mut self) -> Result<usize, Error> {
        self.take('(', "`(` and a number of bytes")?;
        let (column, text) = self.value();
        let number = value::number(&text).ok_or_else(|| Error::Expected {
            column,
            expected: "a number of bytes",
            found: format!("{text:?}"),
        })?;
        let bytes = usize::try_from(number).unwrap_or(usize::MAX);
        if bytes > MAX_BYTES {
            return Err(Error::TooLong { column, bytes });
        }
        self.take(')', "`)`")?;
        Ok(bytes)
    }

    fn quoted(&mut self) -> Result<Vec<u8>, Error> {
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            let letter = self.peek().ok_or_else(|| self.expected("the quote that ends the text"))?;
            self.at += 1;
            match letter {
                '"' => return Ok(bytes),
                '\\' => {
                    let escaped = self.peek();
                    self.at += 1;
                    match escaped {
                        Some('n') => bytes.push(b'\n'),
                        Some('r') => bytes.push(b'\r'),
                        Some('t') => bytes.push(b'\t'),
                        Some(c @ ('"' | '\\')) => bytes.push(c as u8),
                        Some('x') => {
                            let digits = self.letters.get(self.at..self.at + 2);
                            let byte = digits.and_then(|digits| value::unhex(&String::from_iter(digits)));
                            match byte.as_deref() {
                                Some([byte]) => bytes.push(*byte),
                                _ => return Err(self.expected("two hexadecimal digits after \\x")),
                            }
                            self.at += 2;
                        }
                        _ => {
                            self.at -= 1;
                            return Err(self.expected("n, r, t, x, \" or \\ after \\"));
                        }
                    }
                }
                letter => bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
    }

    fn layer(&mut self, column: usize, name: String) -> Result<Layer, Error> {
        let Some(def) = layers::named(&name) else {
            let mut known: Vec<_> = layers::all().map(|def| def.name).collect();
            known.extend(["hex", "zeros", "pad", "cut"]);
            return Err(Error::UnknownLayer { column, nearest: nearest(&name, &known), name, known });
        };
        let mut layer = Layer { def, given: Vec::new(), tail: Vec::new() };
        self.space();
        if self.peek() != Some('(') {
            return Ok(layer);
        }
        self.at += 1;
        let mut tail_given = false;
        loop {
            self.space();
            if self.peek() == Some(')') {
                self.at += 1;
                break;
            }
            self.field(&mut layer, &mut tail_given)?;
            self.space();
            match self.peek() {
                Some(',') => self.at += 1,
                Some(')') => {}
                _ => return Err(self.expected("`,` and the next field, or `)`")),
            }
        }
        layer.given.sort_unstable();
        check_header(&layer, column)?;
        Ok(layer)
    }

    fn field(&mut self, layer: &mut Layer, tail_given: &mut bool) -> Result<(), Error> {
        let def = layer.def;
        self.space();
        let column = self.column();
        let name = self.word("a field, as in src=10.0.0.1")?;
        self.take('=', "`=` and the field's value")?;
        let (value_column, text) = self.value();
        if let Some(tail) = tail_name(def.tail).filter(|tail| *tail == name) {
            if std::mem::replace(tail_given, true) {
                return Err(Error::Twice { column, layer: def.name, field: tail });
            }
            layer.tail = tail_bytes(def, tail, value_column, &text)?;
            return Ok(());
        }
        let Some(index) = def.field(&name) else {
            let mut known: Vec<_> = def.fields.iter().map(|field| field.name).collect();
            known.extend(tail_name(def.tail));
            let nearest = nearest(&name, &known);
            return Err(Error::UnknownField { column, layer: def.name, name, nearest, known });
        };
        let field = &def.fields[index];
        if layer.given.iter().any(|(other, _)| *other == index) {
            return Err(Error::Twice { column, layer: def.name, field: field.name });
        }
        let value = value::parse(field, &text).ok_or_else(|| Error::Value {
            column: value_column,
            layer: def.name,
            field: field.name,
            value: text,
            expected: value::expected(field),
        })?;
        layer.given.push((index, value));
        Ok(())
    }
}

fn tail_bytes(def: &LayerDef, field: &'static str, column: usize, text: &str) -> Result<Vec<u8>, Error> {
    let layer = layers::named(def.name).map_or("", |def| def.name);
    let wrong = |at: usize, expected: &str| Error::Value {
        column: column + at,
        layer,
        field,
        value: text.chars().skip(at).collect(),
        expected: expected.to_owned(),
    };
    if matches!(def.tail, Tail::Data { .. }) {
        let expected = "bytes like hex(0102)";
        let digits = text.strip_prefix("hex(").and_then(|text| text.strip_suffix(')'));
        return digits.and_then(value::unhex).ok_or_else(|| wrong(0, expected));
    }
    let tcp = def.tail == Tail::TcpOptions;
    let expected = match tcp {
        true => "a list like [mss(1460),nop,wscale(7),sackok,ts(1,0),sack(1,2),eol,hex(fd02)]",
        false => "a list like [nop,alert(0),eol,hex(8202)]",
    };
    let list = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    options::parse(tcp, list.ok_or_else(|| wrong(0, expected))?).map_err(|at| wrong(at + 1, expected))
}

/// Whether the length field can say how long the header is, unless it is given.
fn check_header(layer: &Layer, column: usize) -> Result<(), Error> {
    let def = layer.def;
    let bytes = (def.bytes + layer.tail.len()).next_multiple_of(def.tail.unit());
    let counted = def.fields.iter().enumerate().find_map(|(index, field)| match field.auto {
        layers::Auto::Header { unit, less } => Some((index, unit * (field.most() as usize + less))),
        _ => None,
    });
    match counted {
        Some((index, most)) if bytes > most && layer.given.iter().all(|(given, _)| *given != index) => {
            Err(Error::HeaderTooLong { column, layer: def.name, bytes, most })
        }
        _ => Ok(()),
    }
}
