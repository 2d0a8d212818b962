//! The tokens of a line to an instruction, by recursive descent: one method for each thing that can stand
//! somewhere, each of which either takes its tokens or says what it expected.

use super::error::{AssembleError, AssembleProblem};
use super::lex::{Kind, Position, Token};
use super::line::{LabelUse, Line, out_of_range, unexpected, wide_only};
use crate::disasm::{AtomicSyntax, CMPXCHG, XCHG};
use crate::insn::{
    AluOp, AtomicOp, ByteOrder, CallTarget, Cond, Imm64, Insn, Operand, PacketBase, Reg, Size, Width,
};

/// An instruction. With a label, its distance is filled in later.
type Parsed<'a> = (Insn, Option<LabelUse<'a>>);

/// Operators that follow the `s` of signed operations.
const SIGNED_ASSIGN: [(&str, AluOp); 3] = [("/=", AluOp::Sdiv), ("%=", AluOp::Smod), (">>=", AluOp::Arsh)];

impl<'a> Line<'a> {
    /// The label that is defined here, if one is.
    pub(super) fn label(&mut self) -> Option<(&'a str, Position)> {
        let token = self.peek();
        if token.kind != Kind::Word || self.peek_second().text != ":" {
            return None;
        }
        self.next += 2;
        Some((token.text, token.position))
    }

    /// Skips the slot number before an instruction, if there is one.
    pub(super) fn slot_number(&mut self, actual: usize) -> Result<(), AssembleError> {
        let token = self.peek();
        match token.kind {
            Kind::Number(written) if self.peek_second().text == ":" => {
                if written != actual as u64 {
                    let problem = AssembleProblem::WrongSlotNumber { written, actual };
                    return Err(token.position.error(problem));
                }
                self.next += 2;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The instruction of this line, if it has one, and nothing after it.
    pub(super) fn insn(&mut self) -> Result<Option<Parsed<'a>>, AssembleError> {
        if self.peek().kind == Kind::End {
            return Ok(None);
        }
        let parsed = self.statement()?;
        match self.peek().kind {
            Kind::End => Ok(Some(parsed)),
            _ => Err(self.unexpected("the end of the line")),
        }
    }

    fn statement(&mut self) -> Result<Parsed<'a>, AssembleError> {
        if self.take("*") {
            return self.store().map(plain);
        }
        if let Some((width, dst)) = self.take_register() {
            return self.assignment(width, dst);
        }
        let token = self.peek();
        if token.kind != Kind::Word {
            return Err(self.unexpected("an instruction"));
        }
        self.next += 1;
        match token.text {
            "exit" => Ok(plain(Insn::Exit)),
            "goto" => {
                let (offset, label) = self.short_distance()?;
                Ok((Insn::Jump { offset: offset.into(), long: false }, label))
            }
            "gotol" => {
                let (offset, label) = self.long_distance()?;
                Ok((Insn::Jump { offset, long: true }, label))
            }
            "may_goto" => {
                let (offset, label) = self.short_distance()?;
                Ok((Insn::MayGoto { offset }, label))
            }
            "if" => self.jump_if(),
            "call" => self.call(),
            "callx" => Ok(plain(Insn::CallReg { reg: self.register(Width::W64)? })),
            "lock" => self.lock().map(plain),
            "store_release" => self.store_release().map(plain),
            _ => {
                self.next -= 1;
                Err(self.unexpected("an instruction"))
            }
        }
    }

    /// `goto` after a comparison.
    fn jump_if(&mut self) -> Result<Parsed<'a>, AssembleError> {
        let (width, dst) = self.any_register()?;
        let cond = self.cond()?;
        let src = self.operand(width)?;
        if !self.take("goto") {
            return Err(self.unexpected("`goto`"));
        }
        let (offset, label) = self.short_distance()?;
        Ok((Insn::JumpIf { width, cond, dst, src, offset }, label))
    }

    fn cond(&mut self) -> Result<Cond, AssembleError> {
        // Signed conditions are two tokens, an `s` and the unsigned condition.
        let signed = self.take("s");
        let symbol = |cond: &Cond| match cond.symbol().strip_prefix('s') {
            Some(symbol) => (true, symbol),
            None => (false, cond.symbol()),
        };
        match Cond::ALL.iter().find(|cond| symbol(cond) == (signed, self.peek().text)) {
            Some(&cond) => {
                self.next += 1;
                Ok(cond)
            }
            None => Err(self.unexpected("one of == != > >= < <= s> s>= s< s<= &")),
        }
    }

    fn call(&mut self) -> Result<Parsed<'a>, AssembleError> {
        let token = self.peek();
        if token.kind != Kind::Word {
            let number = self.number("a helper's number", i32::MIN.into(), u32::MAX.into(), "")?;
            return Ok(plain(Insn::Call { target: CallTarget::Helper(number as u32) }));
        }
        self.next += 1;
        let sign_follows = matches!(self.peek().text, "+" | "-");
        let (target, label) = if token.text == "pc" && sign_follows {
            let (distance, label) = self.long_distance()?;
            (CallTarget::Local(distance), label)
        } else if token.text == "kfunc" && self.take("[") {
            let id = self.named_number("a BTF id", i32::MIN.into(), i32::MAX as u64)? as i32;
            let object = match self.take(",") {
                true => self.number("a BTF object", i16::MIN.into(), i16::MAX as u64, "")? as i16,
                false => 0,
            };
            self.expect("]")?;
            (CallTarget::Kfunc { id, object }, None)
        } else if self.take("#") {
            (CallTarget::Helper(self.number("a helper's number", 0, u32::MAX.into(), "")? as u32), None)
        } else {
            let label = LabelUse { name: token.text, position: token.position };
            (CallTarget::Local(0), Some(label))
        };
        Ok((Insn::Call { target }, label))
    }

    /// What follows the destination register.
    fn assignment(&mut self, width: Width, dst: Reg) -> Result<Parsed<'a>, AssembleError> {
        if self.take("=") {
            return self.value(width, dst);
        }
        let op = self.assign_operator()?;
        let src = self.operand(width)?;
        Ok(plain(Insn::Alu { width, op, dst, src }))
    }

    fn assign_operator(&mut self) -> Result<AluOp, AssembleError> {
        let signed = self.take("s");
        let text = self.peek().text;
        let op = match (signed, text.strip_suffix('=')) {
            (true, _) => SIGNED_ASSIGN.iter().find(|row| row.0 == text).map(|row| row.1),
            (false, Some(symbol)) => {
                AluOp::ALL.into_iter().find(|op| *op != AluOp::Mov && op.symbol() == symbol)
            }
            (false, None) => None,
        };
        match op {
            Some(op) => {
                self.next += 1;
                Ok(op)
            }
            None => Err(self.unexpected("one of = += -= *= /= s/= |= &= <<= >>= s>>= %= s%= ^=")),
        }
    }

    /// What follows `r1 =`.
    fn value(&mut self, width: Width, dst: Reg) -> Result<Parsed<'a>, AssembleError> {
        let token = self.peek();
        if token.text == "-" && self.peek_second().kind == Kind::Word {
            self.next += 1;
            self.same_register(width, dst)?;
            return Ok(plain(Insn::Neg { width, dst }));
        }
        if token.text == "-" || matches!(token.kind, Kind::Number(_)) {
            return self.immediate_value(width, dst).map(plain);
        }
        if self.take("(") {
            return self.sign_extension(width, dst).map(plain);
        }
        if self.take("*") {
            return self.load(width, dst).map(plain);
        }
        if let Some(src) = self.take_register() {
            self.check_register(src, width, token)?;
            return Ok(plain(Insn::Alu { width, op: AluOp::Mov, dst, src: Operand::Reg(src.1) }));
        }
        if token.kind != Kind::Word {
            return Err(self.unexpected("a value"));
        }
        self.next += 1;
        if self.take("[") {
            let (value, label) = self.address(token)?;
            wide_only(width, token)?;
            return Ok((Insn::LoadImm64 { dst, value }, label));
        }
        self.function_value(width, dst, token).map(plain)
    }

    fn immediate_value(&mut self, width: Width, dst: Reg) -> Result<Insn, AssembleError> {
        let start = self.next;
        let negative = self.take("-");
        let number = self.peek();
        self.next += 1;
        if !self.take("ll") {
            self.next = start;
            let src = Operand::Imm(self.immediate(width)?);
            return Ok(Insn::Alu { width, op: AluOp::Mov, dst, src });
        }
        wide_only(width, number)?;
        let Kind::Number(magnitude) = number.kind else {
            self.next = start + usize::from(negative);
            return Err(self.unexpected("a number"));
        };
        if negative && magnitude > i64::MIN.unsigned_abs() {
            return Err(out_of_range(number, true, "a 64-bit number", i64::MIN, u64::MAX, ""));
        }
        let value = if negative { magnitude.wrapping_neg() } else { magnitude };
        Ok(Insn::LoadImm64 { dst, value: Imm64::Value(value) })
    }

    /// `s8)r2`
    fn sign_extension(&mut self, width: Width, dst: Reg) -> Result<Insn, AssembleError> {
        let token = self.peek();
        let from = match (token.text, width) {
            ("s8", _) => Size::B1,
            ("s16", _) => Size::B2,
            ("s32", Width::W64) => Size::B4,
            (_, Width::W64) => return Err(self.unexpected("one of s8 s16 s32")),
            (_, Width::W32) => return Err(self.unexpected("one of s8 s16")),
        };
        self.next += 1;
        self.expect(")")?;
        Ok(Insn::MovSx { width, from, dst, src: self.register(width)? })
    }

    /// What follows `r1 = *`.
    fn load(&mut self, width: Width, dst: Reg) -> Result<Insn, AssembleError> {
        let kind = self.peek_second();
        let (signed, size) = self.memory_type(true)?;
        if signed || size == Size::B8 {
            wide_only(width, kind)?;
        }
        if self.peek().text != "skb" {
            let (base, offset) = self.memory_place()?;
            return Ok(Insn::Load { size, signed, dst, base, offset });
        }
        if dst != Reg::R0 || signed || size == Size::B8 {
            return Err(self.unexpected("`(` (packet loads are unsigned, of at most 32 bits, and go to r0)"));
        }
        self.next += 1;
        self.expect("[")?;
        let (base, imm) = match self.take_register() {
            None => (PacketBase::Absolute, self.signed_32("an offset")?),
            Some((_, reg)) if self.peek().text == "]" => (PacketBase::Indirect(reg), 0),
            Some((_, reg)) => (PacketBase::Indirect(reg), self.displacement(i32::MIN, i32::MAX)?),
        };
        self.expect("]")?;
        Ok(Insn::LoadPacket { size, base, imm })
    }

    /// What follows the `*` of a store.
    fn store(&mut self) -> Result<Insn, AssembleError> {
        let (_, size) = self.memory_type(false)?;
        let (base, offset) = self.memory_place()?;
        self.expect("=")?;
        let src = match self.peek().kind {
            Kind::Word => Operand::Reg(self.stored_register(size)?),
            _ => Operand::Imm(self.immediate(if size == Size::B8 { Width::W64 } else { Width::W32 })?),
        };
        Ok(Insn::Store { size, base, offset, src })
    }

    /// What follows `lock`.
    fn lock(&mut self) -> Result<Insn, AssembleError> {
        self.expect("*")?;
        let size = self.atomic_type()?;
        let (base, offset) = self.memory_place()?;
        let text = self.peek().text;
        let found = AtomicOp::ALL.into_iter().find(|op| match op.syntax() {
            AtomicSyntax::Lock(symbol) => text.strip_suffix('=') == Some(symbol),
            _ => false,
        });
        let Some(op) = found else { return Err(self.unexpected("one of += |= &= ^=")) };
        self.next += 1;
        Ok(Insn::Atomic { op, size, base, offset, src: self.stored_register(size)? })
    }

    /// What follows `store_release`.
    fn store_release(&mut self) -> Result<Insn, AssembleError> {
        self.expect("(")?;
        let (_, size) = self.memory_type(false)?;
        let (base, offset) = self.memory_place()?;
        self.expect(",")?;
        let src = self.stored_register(size)?;
        self.expect(")")?;
        Ok(Insn::StoreRelease { size, base, offset, src })
    }

    /// What follows `r1 = name`.
    fn function_value(&mut self, width: Width, dst: Reg, name: Token<'a>) -> Result<Insn, AssembleError> {
        let order = match name.text {
            "le16" => Some((ByteOrder::ToLittle, Size::B2)),
            "le32" => Some((ByteOrder::ToLittle, Size::B4)),
            "le64" => Some((ByteOrder::ToLittle, Size::B8)),
            "be16" => Some((ByteOrder::ToBig, Size::B2)),
            "be32" => Some((ByteOrder::ToBig, Size::B4)),
            "be64" => Some((ByteOrder::ToBig, Size::B8)),
            "bswap16" => Some((ByteOrder::Swap, Size::B2)),
            "bswap32" => Some((ByteOrder::Swap, Size::B4)),
            "bswap64" => Some((ByteOrder::Swap, Size::B8)),
            _ => None,
        };
        if let Some((order, size)) = order {
            wide_only(width, name)?;
            self.same_register(width, dst)?;
            return Ok(Insn::Endian { order, size, dst });
        }
        if name.text == "load_acquire" {
            self.expect("(")?;
            let kind = self.peek_second();
            let (_, size) = self.memory_type(false)?;
            if size == Size::B8 {
                wide_only(width, kind)?;
            }
            let (base, offset) = self.memory_place()?;
            self.expect(")")?;
            return Ok(Insn::LoadAcquire { size, dst, base, offset });
        }
        if name.text == "addr_space_cast" {
            wide_only(width, name)?;
            self.expect("(")?;
            let src = self.register(Width::W64)?;
            self.expect(",")?;
            let to = self.address_space()?;
            self.expect(",")?;
            let from = self.address_space()?;
            self.expect(")")?;
            return Ok(Insn::AddrSpaceCast { dst, src, to, from });
        }
        let size_of_width = if width == Width::W64 { Size::B8 } else { Size::B4 };
        let exchange = |names: [(&str, Size); 2]| names.contains(&(name.text, size_of_width));
        if exchange(XCHG) {
            let (base, offset) = self.memory_place_open()?;
            self.expect(",")?;
            self.same_register(width, dst)?;
            self.expect(")")?;
            return Ok(Insn::Atomic { op: AtomicOp::Xchg, size: size_of_width, base, offset, src: dst });
        }
        if exchange(CMPXCHG) {
            let (base, offset) = self.memory_place_open()?;
            self.expect(",")?;
            self.same_register(width, dst)?;
            if dst != Reg::R0 {
                self.next -= 1;
                return Err(self.unexpected("r0, which compare-exchange compares with and returns in"));
            }
            self.expect(",")?;
            let src = self.register(width)?;
            self.expect(")")?;
            return Ok(Insn::Atomic { op: AtomicOp::CmpXchg, size: size_of_width, base, offset, src });
        }
        let fetch = AtomicOp::ALL
            .into_iter()
            .find(|op| matches!(op.syntax(), AtomicSyntax::Fetch(function) if function == name.text));
        let Some(op) = fetch else {
            self.next -= 1;
            return Err(self.unexpected("a value of the destination's width"));
        };
        self.expect("(")?;
        let kind = self.peek_second();
        let size = self.atomic_type()?;
        if size != size_of_width {
            let expected = if width == Width::W64 { "`u64`" } else { "`u32`" };
            return Err(unexpected(kind, expected));
        }
        let (base, offset) = self.memory_place()?;
        self.expect(",")?;
        self.same_register(width, dst)?;
        self.expect(")")?;
        Ok(Insn::Atomic { op, size, base, offset, src: dst })
    }

    /// What follows `map[` and its like, the `ll` included.
    fn address(&mut self, name: Token<'a>) -> Result<(Imm64, Option<LabelUse<'a>>), AssembleError> {
        let mut label = None;
        let fd = |line: &mut Self| line.named_number("a file descriptor", i32::MIN.into(), i32::MAX as u64);
        let map = |line: &mut Self| line.named_number("a map's index", 0, u32::MAX.into());
        let value = match name.text {
            "map_fd" => {
                let fd = fd(self)? as i32;
                self.expect("]")?;
                Imm64::MapFd(fd)
            }
            "map" => {
                let map = map(self)? as u32;
                self.expect("]")?;
                Imm64::Map(map)
            }
            "map_fd_value" => {
                let fd = fd(self)? as i32;
                Imm64::MapFdValue { fd, offset: self.value_offset()? }
            }
            "map_value" => {
                let map = map(self)? as u32;
                Imm64::MapValue { map, offset: self.value_offset()? }
            }
            "var" => {
                let id = self.signed_32("a BTF id")?;
                let object = if self.take(",") { self.signed_32("a BTF object")? } else { 0 };
                self.expect("]")?;
                Imm64::Variable { id, object }
            }
            "func" => {
                let distance;
                (distance, label) = self.long_distance()?;
                self.expect("]")?;
                Imm64::Function(distance)
            }
            _ => return Err(unexpected(name, "one of map map_value map_fd map_fd_value var func")),
        };
        self.expect("ll")?;
        Ok((value, label))
    }

    /// `]+0x10`, or `]` for the start of the value.
    fn value_offset(&mut self) -> Result<u32, AssembleError> {
        self.expect("]")?;
        match self.take("+") {
            true => Ok(self.number("an offset", 0, u32::MAX.into(), "")? as u32),
            false => Ok(0),
        }
    }
}

fn plain<'a>(insn: Insn) -> Parsed<'a> {
    (insn, None)
}
