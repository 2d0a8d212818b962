//! A line that is being read: the tokens it has left, and the small things that instructions are made of -
//! registers, numbers, memory places, distances. Each method either takes its tokens or says what it
//! expected.

use super::error::{AssembleError, AssembleProblem};
use super::lex::{Kind, Position, Token, tokens};
use crate::insn::{Operand, Reg, Size, Width};

/// A label in place of a distance.
pub(super) struct LabelUse<'a> {
    pub(super) name: &'a str,
    pub(super) position: Position,
}

/// A distance, or 0 and the label that it will be counted to.
type Distance<'a> = (i64, Option<LabelUse<'a>>);

const HINT_LL: &str = "; append `ll` to load all 64 bits";
const HINT_GOTOL: &str = "; `gotol` reaches further";

/// One line, and how far it has been read.
pub(super) struct Line<'a> {
    tokens: Vec<Token<'a>>,
    /// Index of the token that comes next.
    pub(super) next: usize,
}

impl<'a> Line<'a> {
    pub(super) fn new(text: &'a str, number: usize) -> Result<Self, AssembleError> {
        Ok(Self { tokens: tokens(text, number)?, next: 0 })
    }

    /// `3` or `name#3`. Only the number counts.
    pub(super) fn named_number(
        &mut self,
        what: &'static str,
        min: i64,
        max: u64,
    ) -> Result<i64, AssembleError> {
        if self.peek().kind == Kind::Word && self.peek_second().text == "#" {
            self.next += 2;
        }
        self.number(what, min, max, "")
    }

    /// `(u32 *)`
    pub(super) fn memory_type(&mut self, signed_too: bool) -> Result<(bool, Size), AssembleError> {
        self.expect("(")?;
        let (signed, size) = match self.peek().text {
            "u8" => (false, Size::B1),
            "u16" => (false, Size::B2),
            "u32" => (false, Size::B4),
            "u64" => (false, Size::B8),
            "s8" if signed_too => (true, Size::B1),
            "s16" if signed_too => (true, Size::B2),
            "s32" if signed_too => (true, Size::B4),
            _ if signed_too => return Err(self.unexpected("one of u8 u16 u32 u64 s8 s16 s32")),
            _ => return Err(self.unexpected("one of u8 u16 u32 u64")),
        };
        self.next += 1;
        self.expect("*")?;
        self.expect(")")?;
        Ok((signed, size))
    }

    /// `(u32 *)` or `(u64 *)`
    pub(super) fn atomic_type(&mut self) -> Result<Size, AssembleError> {
        let kind = self.peek_second();
        match self.memory_type(false)? {
            (_, Size::B1 | Size::B2) => Err(unexpected(kind, "one of u32 u64")),
            (_, size) => Ok(size),
        }
    }

    /// `(r1 + 0x0)`
    pub(super) fn memory_place(&mut self) -> Result<(Reg, i16), AssembleError> {
        let place = self.memory_place_open()?;
        self.expect(")")?;
        Ok(place)
    }

    /// `(r1 + 0x0`
    pub(super) fn memory_place_open(&mut self) -> Result<(Reg, i16), AssembleError> {
        self.expect("(")?;
        let base = self.register(Width::W64)?;
        match self.peek().text {
            ")" | "," => Ok((base, 0)),
            _ => Ok((base, self.displacement(i16::MIN.into(), i16::MAX.into())? as i16)),
        }
    }

    /// ` + 0x1`, ` - 0x1`
    pub(super) fn displacement(&mut self, min: i32, max: i32) -> Result<i32, AssembleError> {
        Ok(self.distance("an offset", min.into(), max.into(), "")? as i32)
    }

    /// The 16-bit distance of a jump, or a label.
    pub(super) fn short_distance(&mut self) -> Result<(i16, Option<LabelUse<'a>>), AssembleError> {
        let (min, max) = (i16::MIN.into(), i16::MAX.into());
        let (distance, label) = self.distance_or_label(min, max, HINT_GOTOL)?;
        Ok((distance as i16, label))
    }

    /// The 32-bit distance of a jump, call or function, or a label.
    pub(super) fn long_distance(&mut self) -> Result<(i32, Option<LabelUse<'a>>), AssembleError> {
        let (distance, label) = self.distance_or_label(i32::MIN.into(), i32::MAX.into(), "")?;
        Ok((distance as i32, label))
    }

    pub(super) fn distance_or_label(
        &mut self,
        min: i64,
        max: i64,
        hint: &'static str,
    ) -> Result<Distance<'a>, AssembleError> {
        let token = self.peek();
        if token.kind == Kind::Word {
            self.next += 1;
            return Ok((0, Some(LabelUse { name: token.text, position: token.position })));
        }
        if !matches!(token.text, "+" | "-") {
            return Err(self.unexpected("a label, or a distance in slots with its sign, `+` or `-`"));
        }
        let distance = self.distance("a distance in slots", min, max, hint)?;
        // llvm-objdump's `<symbol+0x10>`
        if self.peek().text == "<" {
            while self.peek().kind != Kind::End {
                self.next += 1;
            }
        }
        Ok((distance, None))
    }

    /// A number with its sign.
    pub(super) fn distance(
        &mut self,
        what: &'static str,
        min: i64,
        max: i64,
        hint: &'static str,
    ) -> Result<i64, AssembleError> {
        if !self.take("+") && self.peek().text != "-" {
            return Err(self.unexpected("`+` or `-`"));
        }
        self.number(what, min, max.unsigned_abs(), hint)
    }

    /// A second operand of that width.
    pub(super) fn operand(&mut self, width: Width) -> Result<Operand, AssembleError> {
        match self.peek().kind {
            Kind::Word => Ok(Operand::Reg(self.register(width)?)),
            _ => Ok(Operand::Imm(self.immediate(width)?)),
        }
    }

    /// An immediate: sign-extended with 64 bits, else whatever fits 32 bits.
    pub(super) fn immediate(&mut self, width: Width) -> Result<i32, AssembleError> {
        match width {
            Width::W64 => {
                let max = i32::MAX as u64;
                Ok(self.number("a sign-extended immediate", i32::MIN.into(), max, HINT_LL)? as i32)
            }
            Width::W32 => Ok(self.number("a 32-bit immediate", i32::MIN.into(), u32::MAX.into(), "")? as i32),
        }
    }

    pub(super) fn signed_32(&mut self, what: &'static str) -> Result<i32, AssembleError> {
        Ok(self.number(what, i32::MIN.into(), i32::MAX as u64, "")? as i32)
    }

    /// The number of an address space.
    pub(super) fn address_space(&mut self) -> Result<u16, AssembleError> {
        Ok(self.number("an address space", 0, u16::MAX.into(), "")? as u16)
    }

    /// A number of that range, with a `-` before it or not. `max` is at most `u32::MAX`.
    pub(super) fn number(
        &mut self,
        what: &'static str,
        min: i64,
        max: u64,
        hint: &'static str,
    ) -> Result<i64, AssembleError> {
        let start = self.peek();
        let negative = self.take("-");
        let token = self.peek();
        let Kind::Number(magnitude) = token.kind else {
            return Err(self.unexpected("a number"));
        };
        let range_error = || out_of_range(token, negative, what, min, max, hint);
        let value = match negative {
            true => 0i64.checked_sub_unsigned(magnitude).filter(|value| *value >= min),
            false => i64::try_from(magnitude).ok().filter(|_| magnitude <= max),
        };
        self.next += 1;
        value
            .ok_or_else(range_error)
            .map_err(|error| AssembleError { column: start.position.column, ..error })
    }

    /// The register that a store of that size writes out: `w1` will do below eight bytes.
    pub(super) fn stored_register(&mut self, size: Size) -> Result<Reg, AssembleError> {
        match size {
            Size::B8 => self.register(Width::W64),
            _ => Ok(self.any_register()?.1),
        }
    }

    pub(super) fn register(&mut self, width: Width) -> Result<Reg, AssembleError> {
        let token = self.peek();
        let register = self.any_register()?;
        self.check_register(register, width, token)?;
        Ok(register.1)
    }

    pub(super) fn check_register(
        &self,
        (found, _): (Width, Reg),
        width: Width,
        token: Token<'a>,
    ) -> Result<(), AssembleError> {
        match (found == width, width) {
            (true, _) => Ok(()),
            (false, Width::W64) => Err(unexpected(token, "a 64-bit register, r0 to r10")),
            (false, Width::W32) => Err(unexpected(token, "a 32-bit register, w0 to w10")),
        }
    }

    pub(super) fn any_register(&mut self) -> Result<(Width, Reg), AssembleError> {
        self.take_register().ok_or_else(|| self.unexpected("a register, r0 to r10 or w0 to w10"))
    }

    /// The register that stands here, if one does.
    pub(super) fn take_register(&mut self) -> Option<(Width, Reg)> {
        let (letter, number) = self.peek().text.split_at_checked(1)?;
        let width = match letter {
            "r" => Width::W64,
            "w" => Width::W32,
            _ => return None,
        };
        let canonical = number == "0" || !number.starts_with(['0', '+']);
        let register = Reg::new(number.parse().ok().filter(|_| canonical)?)?;
        self.next += 1;
        Some((width, register))
    }

    /// The destination once more, as instructions that work in place are written.
    pub(super) fn same_register(&mut self, width: Width, dst: Reg) -> Result<(), AssembleError> {
        let token = self.peek();
        match self.take_register() {
            Some(register) if register == (width, dst) => Ok(()),
            _ => {
                let letter = if width == Width::W32 { 'w' } else { 'r' };
                Err(unexpected(token, &format!("the destination, {letter}{}, once more", dst.number())))
            }
        }
    }

    pub(super) fn expect(&mut self, text: &str) -> Result<(), AssembleError> {
        if self.take(text) { Ok(()) } else { Err(self.unexpected(&format!("`{text}`"))) }
    }

    /// Takes the token if it is this one.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let found = self.peek().text == text;
        self.next += usize::from(found);
        found
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.at(self.next)
    }

    pub(super) fn peek_second(&self) -> Token<'a> {
        self.at(self.next + 1)
    }

    /// The token of that index. Every line ends with [`Kind::End`], which stands for all beyond it.
    pub(super) fn at(&self, index: usize) -> Token<'a> {
        self.tokens[index.min(self.tokens.len() - 1)]
    }

    pub(super) fn unexpected(&self, expected: &str) -> AssembleError {
        unexpected(self.peek(), expected)
    }
}

/// Refuses a 64-bit value for a 32-bit register.
pub(super) fn wide_only(width: Width, value: Token<'_>) -> Result<(), AssembleError> {
    match width {
        Width::W64 => Ok(()),
        Width::W32 => {
            Err(unexpected(value, "a 32-bit value for a w register (this one needs an r register)"))
        }
    }
}

pub(super) fn unexpected(token: Token<'_>, expected: &str) -> AssembleError {
    let found = match token.kind {
        Kind::End => "the end of the line".to_owned(),
        _ => format!("`{}`", token.text),
    };
    token.position.error(AssembleProblem::Unexpected { expected: expected.to_owned(), found })
}

pub(super) fn out_of_range(
    token: Token<'_>,
    negative: bool,
    what: &'static str,
    min: i64,
    max: u64,
    hint: &'static str,
) -> AssembleError {
    let sign = if negative { "-" } else { "" };
    let number = format!("{sign}{}", token.text);
    token.position.error(AssembleProblem::NumberOutOfRange { number, what, min, max, hint })
}
