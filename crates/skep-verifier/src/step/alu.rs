//! Arithmetic on numbers, and the few operations that are allowed on pointers.

use crate::domain::scalar::Scalar;
use crate::domain::state::State;
use crate::domain::value::{Kind, MAX_OFFSET, Value};
use crate::domain::words;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::stale::{is_bits, same_packet};
use skep_isa::{AluOp, Insn, Operand, Reg, Width};

impl Transfer<'_> {
    /// The value in `reg`, which must be readable and not stale.
    pub(crate) fn read(&self, state: &State, reg: Reg) -> Checked<Value> {
        Ok(*self.peek(state, reg)?)
    }

    /// The same by reference: values are large, and a copy from memory is cheaper than a return by value.
    #[inline]
    pub(crate) fn peek<'s>(&self, state: &'s State, reg: Reg) -> Checked<&'s Value> {
        let value = state.reg(reg);
        if value.is_readable() { Ok(value) } else { Err(self.unreadable(reg, value)) }
    }

    /// The value of an operand, which may be a stale address.
    pub(crate) fn operand(&self, state: &State, operand: Operand) -> Checked<Value> {
        match operand {
            Operand::Reg(reg) => self.look(state, reg).copied(),
            Operand::Imm(imm) => Ok(Value::constant(i64::from(imm) as u64)),
        }
    }

    #[inline]
    pub(crate) fn write(&self, state: &mut State, reg: Reg, value: Value) -> Checked<()> {
        if reg == Reg::R10 {
            return Err(read_only());
        }
        *state.reg_mut(reg) = value;
        Ok(())
    }

    /// One of the instructions that compute a register from registers.
    pub(crate) fn arithmetic(&mut self, state: &mut State, insn: &Insn) -> Checked<()> {
        match *insn {
            Insn::Alu { width, op: AluOp::Mov, dst, src: Operand::Imm(imm) } => {
                let number = match width {
                    Width::W64 => i64::from(imm) as u64,
                    Width::W32 => u64::from(imm as u32),
                };
                self.write(state, dst, Value::constant(number))
            }
            Insn::Alu { width, op: AluOp::Mov, dst, src: Operand::Reg(src) } => {
                let value = self.copied(state, width, dst, src)?;
                self.write(state, dst, value)
            }
            Insn::Alu { width, op, dst, src } => self.binary(state, width, op, dst, src),
            Insn::Neg { width, dst } => {
                let lenient = self.env.config.abilities.lenient;
                let make = |number: &Scalar| if lenient { number.neg(width) } else { unclear(width) };
                self.unary(state, dst, dst, "-", make)
            }
            Insn::MovSx { width, from, dst, src } => {
                let value = self.look(state, src)?;
                if value.is_scalar() && value.num.sign_extended(from, width) == value.num {
                    // Nothing changed: the two are the same number.
                    let value = self.copied(state, Width::W64, dst, src)?;
                    return self.write(state, dst, value);
                }
                self.unary(state, dst, src, "sign extension", |number| number.sign_extended(from, width))
            }
            Insn::Endian { order, size, dst } => {
                let lenient = self.env.config.abilities.lenient;
                let make =
                    |number: &Scalar| if lenient { number.endian(order, size) } else { Scalar::UNKNOWN };
                self.unary(state, dst, dst, "byte swap", make)
            }
            _ => Ok(()),
        }
    }

    /// Sets `dst` to `make` of the number in `src`.
    fn unary(
        &self,
        state: &mut State,
        dst: Reg,
        src: Reg,
        op: &str,
        make: impl Fn(&Scalar) -> Scalar,
    ) -> Checked<()> {
        let value = &self.look(state, src)?.outside_of_arena();
        let result = if value.is_scalar() {
            Value::scalar(make(&value.num))
        } else if self.may_leak() {
            // In programs that may leak addresses, the result is a number.
            Value::UNKNOWN
        } else {
            self.unless_dead(dst, || self.forbidden(op, src, value))?
        };
        self.write(state, dst, result)
    }

    /// A copy of a register, linked to it if it is a number that can still be narrowed.
    fn copied(&mut self, state: &mut State, width: Width, dst: Reg, src: Reg) -> Checked<Value> {
        let value = *self.look(state, src)?;
        if !value.is_scalar() {
            if width == Width::W32 && value.kind == Kind::Arena {
                return Ok(Value::scalar(Scalar::UNKNOWN.truncated()));
            }
            if width == Width::W32 && value.is_of_packet() {
                // Clang subtracts `data` from `data_end` in 32 bits where only those are used.
                return Ok(Value::pointer(Kind::PacketHalf, 0));
            }
            if width == Width::W32 && self.may_leak() {
                return Ok(Value::scalar(Scalar::UNKNOWN.truncated()));
            }
            if width == Width::W32 {
                return self.unless_dead(dst, || {
                    if value.is_stale() {
                        return self.unreadable(src, &value);
                    }
                    let text =
                        format!("expected a number in {src}, found {value}: half of a pointer would leak");
                    Violation::new(Code::PointerLeak, text)
                });
            }
            return Ok(value);
        }
        if value.num.is_constant() {
            return Ok(Value::scalar(if width == Width::W32 { value.num.truncated() } else { value.num }));
        }
        let linked = width == Width::W64 || self.env.config.abilities.linked_halves;
        if width == Width::W32 && (!linked || value.num.umax > u64::from(u32::MAX)) {
            return Ok(Value::scalar(value.num.truncated()));
        }
        if value.id == 0 {
            state.reg_mut(src).id = self.new_id();
        }
        Ok(*state.reg(src))
    }

    fn binary(&mut self, state: &mut State, width: Width, op: AluOp, dst: Reg, src: Operand) -> Checked<()> {
        let b_num;
        let regs = &mut state.top_mut().regs.0;
        let (a, b) = match src {
            Operand::Imm(imm) => {
                b_num = Scalar::constant(i64::from(imm) as u64);
                (&regs[dst.index()], &b_num)
            }
            Operand::Reg(src) => (&regs[dst.index()], &regs[src.index()].num),
        };
        let numbers = a.is_scalar() && !matches!(src, Operand::Reg(src) if !regs[src.index()].is_scalar());
        if !numbers {
            self.notes.relies = true;
            let a = *self.look(state, dst)?;
            let b = self.operand(state, src)?;
            let result = self.with_pointer(width, op, dst, src, &a, &b)?;
            return self.write(state, dst, result);
        }
        if let (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, Operand::Imm(imm)) = (op, src)
            && !(0..width.bits() as i32).contains(&imm)
            && self.env.program_type().number.is_some()
        {
            // RFC 9669 masks the count, but Linux refuses what can only be a mistake; so do its types here.
            let text = format!("the shift count {imm} is not in 0..{}", width.bits());
            return Err(Violation::new(Code::Structure, text).in_linux(format!("invalid shift {imm}")));
        }
        if let (AluOp::Div | AluOp::Mod | AluOp::Sdiv | AluOp::Smod, Operand::Imm(0)) = (op, src)
            && self.env.program_type().number.is_some()
        {
            // Also defined, and also surely a mistake.
            let text = "division by the constant 0";
            return Err(Violation::new(Code::Structure, text).in_linux("div by zero"));
        }
        let lenient = self.env.config.abilities.lenient;
        let is_unclear = match op {
            AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => b.umax >= u64::from(width.bits()),
            AluOp::Div | AluOp::Mod | AluOp::Sdiv | AluOp::Smod => true,
            _ => false,
        };
        let num = if src == Operand::Reg(dst) && matches!(op, AluOp::Sub | AluOp::Xor) {
            Scalar::constant(0)
        } else if is_unclear && !lenient {
            unclear(width)
        } else {
            a.num.alu(op, width, b)
        };
        let link = match b.as_constant() {
            Some(added) if a.id != 0 && width == Width::W64 && lenient => moved_offset(op, a.offset, added),
            _ => None,
        };
        // r10 is never a number, so it is not written here.
        let result = &mut regs[dst.index()];
        result.num = num;
        match link {
            Some(offset) => result.offset = offset,
            None => (result.id, result.offset) = (0, 0),
        }
        Ok(())
    }

    /// Arithmetic in which at least one side is a pointer.
    fn with_pointer(
        &mut self,
        width: Width,
        op: AluOp,
        dst: Reg,
        src: Operand,
        a: &Value,
        b: &Value,
    ) -> Checked<Value> {
        if let Some(result) = self.arena_arithmetic(op, dst, src, a, b)? {
            return Ok(result);
        }
        let b = &b.outside_of_arena();
        // The distance between two places in a packet; in 32 bits, its lower half.
        match width {
            // Of two slices it would tell where the host's memory is.
            Width::W64 if op == AluOp::Sub && a.slice().is_some() && a.slice() == b.slice() => {
                return Ok(Value::UNKNOWN);
            }
            Width::W64 if op == AluOp::Sub && (a.is_packet() && b.is_packet() || same_packet(a, b)) => {
                return Ok(Value::UNKNOWN);
            }
            Width::W32 if op == AluOp::Sub && (a.is_of_packet() && b.is_of_packet() || same_packet(a, b)) => {
                return Ok(Value::scalar(Scalar::UNKNOWN.truncated()));
            }
            Width::W64 if op == AluOp::Sub && a.is_pointer() && b.is_pointer() && self.may_leak() => {
                return Ok(Value::UNKNOWN);
            }
            Width::W32 if op == AluOp::Sub && self.may_leak() => {
                return Ok(Value::scalar(Scalar::UNKNOWN.truncated()));
            }
            _ => {}
        }
        let name = match src {
            Operand::Reg(src) if !b.is_scalar() => src,
            _ => dst,
        };
        let refused = || {
            let violation = match (src, a.is_stale()) {
                (_, true) => self.forbidden(op.symbol(), dst, a),
                (Operand::Reg(src), _) if b.is_stale() => self.forbidden(op.symbol(), src, b),
                _ => self.forbidden(op.symbol(), name, if a.is_scalar() { b } else { a }),
            };
            violation.in_linux(words::arithmetic(op, dst, a, b, width == Width::W32))
        };
        let (pointer, number) = match (op, a.is_scalar(), b.is_scalar()) {
            (AluOp::Add, false, true) | (AluOp::Sub, false, true) => (a, b),
            (AluOp::Add, true, false) => (b, a),
            // Arithmetic on a stale address, or a difference of pointers, is allowed if its result is dead.
            _ if a.is_stale() || b.is_stale() || (op == AluOp::Sub && !a.is_scalar() && !b.is_scalar()) => {
                return self.unless_dead(dst, refused);
            }
            _ => return Err(refused()),
        };
        if pointer.is_stale() && (width == Width::W32 || is_bits(pointer)) {
            return self.unless_dead(dst, refused);
        }
        if width == Width::W32 {
            let words = words::arithmetic(op, dst, a, b, true);
            return Err(self.forbidden("32-bit arithmetic", name, pointer).in_linux(words));
        }
        let nothing = op == AluOp::Add && number.num.as_constant() == Some(0);
        match pointer.kind {
            // The address of a map stays what it is.
            Kind::Map { .. } | Kind::InnerMap { maybe_null: false, .. } if nothing => return Ok(*pointer),
            Kind::PacketEnd
            | Kind::SliceEnd { .. }
            | Kind::PacketHalf
            | Kind::Map { .. }
            | Kind::InnerMap { .. }
            | Kind::Function { .. }
            | Kind::Struct { .. }
            | Kind::Opaque { .. } => {
                return Err(refused());
            }
            _ if pointer.is_maybe_null() => {
                let text = format!("arithmetic on {name}, which may be null: {pointer}");
                let words = words::arithmetic(op, dst, a, b, false);
                return Err(Violation::new(Code::MaybeNull, text).suggest(CHECK_NULL).in_linux(words));
            }
            _ => {}
        }
        if op == AluOp::Sub
            && matches!(pointer.kind, Kind::Stack { .. })
            && !self.env.config.abilities.lenient
        {
            let text = format!("numbers may not be subtracted from addresses of the stack, such as {name}");
            let words = format!("R{} subtraction from stack pointer prohibited", dst.number());
            return Err(Violation::new(Code::PointerArithmetic, text)
                .suggest("add a negative number")
                .in_linux(words));
        }
        let mut result = *pointer;
        if let Some(number) = number.num.as_constant() {
            let number = number as i64;
            let offset = i64::from(pointer.offset).wrapping_add(if op == AluOp::Sub {
                number.wrapping_neg()
            } else {
                number
            });
            if number.unsigned_abs() >= MAX_OFFSET as u64 || offset.abs() >= MAX_OFFSET {
                let words = words::too_far(op, dst, pointer, &Value::constant(number as u64));
                return self.unless_far(dst, || too_far(name, pointer, &number).in_linux(words));
            }
            result.offset = offset as i32;
            return Ok(result);
        }
        if pointer.kind == Kind::Context {
            let bounded = (-MAX_OFFSET..MAX_OFFSET).contains(&number.num.smin);
            if !self.env.config.abilities.lenient && !bounded {
                let words = words::too_far(op, dst, pointer, number);
                return Err(too_far(name, pointer, &number.num).in_linux(words));
            }
            if self.may_leak() {
                return Ok(Value::UNKNOWN); // good for helpers that read any address, and for nothing else
            }
            return self.unless_forgotten(dst, || {
                let text = format!("expected a constant offset into the context, found {}", number.num);
                let words =
                    format!("variable ctx access var_off={} disallowed", words::bits(number.num.bits));
                Violation::new(Code::PointerArithmetic, text).in_linux(words)
            });
        }
        let limits = -MAX_OFFSET..MAX_OFFSET;
        let within = |num: &Scalar| limits.contains(&num.smin) && limits.contains(&num.smax);
        result.num = pointer.num.alu(op, Width::W64, &number.num);
        if !within(&number.num) || !within(&result.num) {
            // A number that is not precise may have been forgotten where paths meet.
            return self.unless_far(dst, || {
                too_far(name, pointer, &number.num).in_linux(words::too_far(op, dst, pointer, number))
            });
        }
        if pointer.has_range() {
            result.id = self.new_id();
            result.range = match self.env.config.abilities.lenient {
                true => remaining(op, pointer.range, &number.num),
                false => 0,
            };
        }
        Ok(result)
    }

    /// A pointer that was moved too far is refused, unless it does not matter.
    fn unless_far(&self, dst: Reg, violation: impl FnOnce() -> Box<Violation>) -> Checked<Value> {
        match self.env.config.abilities.lenient {
            true => self.unless_forgotten(dst, violation),
            false => Err(violation()),
        }
    }

    #[cold]
    pub(crate) fn forbidden(&self, op: &str, reg: Reg, value: &Value) -> Box<Violation> {
        if value.is_stale() {
            return self.unreadable(reg, value);
        }
        let text = format!("expected a number in {reg} for {op}, found {value}");
        let violation = Violation::new(Code::PointerArithmetic, text);
        if value.is_maybe_null() { violation.suggest(CHECK_NULL) } else { violation }
    }
}

/// The suggestion for a pointer that may be null.
pub(crate) const CHECK_NULL: &str = "compare it with NULL first";

/// The range of a packet pointer with `range` after adding or subtracting a number: the bytes left before the end from
/// the furthest place it may point to.
fn remaining(op: AluOp, range: u32, number: &Scalar) -> u32 {
    let furthest = if op == AluOp::Sub { number.smin.saturating_neg() } else { number.smax };
    u32::try_from(i64::from(range) - furthest.max(0)).unwrap_or(0)
}

/// The distance from the linked number after adding or subtracting a constant.
fn moved_offset(op: AluOp, offset: i32, added: u64) -> Option<i32> {
    let added = added as i64;
    let moved = match op {
        AluOp::Add => i64::from(offset).checked_add(added)?,
        AluOp::Sub => i64::from(offset).checked_sub(added)?,
        _ => return None,
    };
    i32::try_from(moved).ok()
}

/// Any number of that width.
fn unclear(width: Width) -> Scalar {
    match width {
        Width::W32 => Scalar::UNKNOWN.truncated(),
        Width::W64 => Scalar::UNKNOWN,
    }
}

#[cold]
fn read_only() -> Box<Violation> {
    Violation::new(Code::ReadOnly, "r10 is the frame pointer, which is read-only")
        .in_linux("frame pointer is read only")
}

#[cold]
fn too_far(reg: Reg, pointer: &Value, number: &dyn std::fmt::Display) -> Box<Violation> {
    let text = format!("{number} is too large to add to or subtract from {reg}, which is {pointer}");
    Violation::new(Code::PointerArithmetic, text)
        .suggest("bound the number with a comparison or a mask first")
}
