//! Instructions to text, in the C-like syntax of clang and `llvm-objdump -d`.
//!
//! Where LLVM 19 prints an instruction in full, this module prints the same text. It differs, so that the
//! [assembler](crate::assemble) can restore every instruction, where LLVM's text leaves something out:
//!
//! | instruction | LLVM | here |
//! |---|---|---|
//! | call of a function in the program | `call 0x5` | `call pc+0x5`, or by name |
//! | call of a kernel function | `call 0x5` | `call kfunc[5]`, `call kfunc[5, 1]` with its BTF object |
//! | address of a map | `ld_pseudo r1, 0x1, 0x3` | `r1 = map_fd[3] ll`, `r1 = map[3] ll` |
//! | address in a map's value | `ld_pseudo r1, 0x2, ...` | `r1 = map_fd_value[3]+0x10 ll`, `r1 = map_value[3]+0x10 ll` |
//! | address of a variable | `ld_pseudo r1, 0x3, ...` | `r1 = var[7] ll`, `r1 = var[7, 1] ll` with its BTF object |
//! | address of a function | `ld_pseudo r1, 0x4, ...` | `r1 = func[+0x5] ll`, or by name |
//! | legacy packet load, register and immediate | `r0 = *(u8 *)skb[r1]` | `r0 = *(u8 *)skb[r1 + 0x4]` |
//!
//! Load-acquire and store-release are printed as LLVM 20 does. Numbers that name something (maps, kernel
//! functions) are decimal, all others hexadecimal.

use std::fmt;

use crate::insn::{
    AluOp, AtomicOp, ByteOrder, CallTarget, Cond, Imm64, Insn, Operand, PacketBase, Reg, Size, Width,
};

/// Something in a program that may have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// The helper of this number.
    Helper(u32),
    /// The kernel function of this BTF id in the BTF object of this index.
    Kfunc {
        /// BTF id.
        id: i32,
        /// Index of the BTF object.
        object: i16,
    },
    /// The map of this index.
    Map(u32),
    /// The map of this file descriptor.
    MapFd(i32),
    /// The function that starts in this slot.
    Function(usize),
}

/// What [`Listing::names`] asks for names.
type Names<'a> = dyn Fn(Symbol) -> Option<String> + 'a;

/// A program as text: one line an instruction, with its slot number. Made by [`disassemble`].
///
/// [`assemble`](crate::assemble) takes this text back and restores the program, named or not, as long as the
/// names are words and no two functions share one.
#[derive(Clone, Copy)]
pub struct Listing<'a> {
    insns: &'a [Insn],
    names: &'a Names<'a>,
}

/// A program as text, to be printed with `{}`.
///
/// ```
/// let program = skep_isa::assemble("r0 = 0x2\nexit")?;
/// assert_eq!(skep_isa::disassemble(&program).to_string(), "       0:\tr0 = 0x2\n       1:\texit\n");
/// # Ok::<(), skep_isa::AssembleError>(())
/// ```
pub fn disassemble(insns: &[Insn]) -> Listing<'_> {
    Listing { insns, names: &|_| None }
}

impl<'a> Listing<'a> {
    /// Prints what `names` has a name for with that name: `call bpf_map_lookup_elem#1`,
    /// `r1 = map[flows#3] ll`, and functions of the program as labels, `parse:` and `call parse`.
    pub fn names(self, names: &'a Names<'a>) -> Self {
        Self { names, ..self }
    }
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (slot, insn) in self.insns.iter().enumerate() {
            if matches!(insn, Insn::LoadImm64Tail) {
                continue;
            }
            if let Some(name) = (self.names)(Symbol::Function(slot)) {
                writeln!(f, "{name}:")?;
            }
            let line = Line { insn, place: Some((slot, self.insns)), names: self.names };
            writeln!(f, "{slot:8}:\t{line}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Insn {
    /// The instruction in the syntax of [`assemble`](crate::assemble). A [`LoadImm64Tail`](Insn::LoadImm64Tail)
    /// prints as a comment: the load before it stands for both.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Line { insn: self, place: None, names: &|_| None }, f)
    }
}

impl AluOp {
    /// The operator before the `=` of an assignment; empty for [`Mov`](AluOp::Mov).
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Sdiv => "s/",
            Self::Or => "|",
            Self::And => "&",
            Self::Lsh => "<<",
            Self::Rsh => ">>",
            Self::Arsh => "s>>",
            Self::Mod => "%",
            Self::Smod => "s%",
            Self::Xor => "^",
            Self::Mov => "",
        }
    }
}

impl Cond {
    /// The comparison operator.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Sgt => "s>",
            Self::Sge => "s>=",
            Self::Slt => "s<",
            Self::Sle => "s<=",
            Self::Set => "&",
        }
    }
}

/// How an atomic operation is written.
pub(crate) enum AtomicSyntax {
    /// `lock *(u64 *)(r1 + 0x0) += r2`, with this operator.
    Lock(&'static str),
    /// `r2 = atomic_fetch_add((u64 *)(r1 + 0x0), r2)`, with this function.
    Fetch(&'static str),
    /// `r2 = xchg_64(r1 + 0x0, r2)`
    Xchg,
    /// `r0 = cmpxchg_64(r1 + 0x0, r0, r2)`
    CmpXchg,
}

impl AtomicOp {
    pub(crate) const fn syntax(self) -> AtomicSyntax {
        match self {
            Self::Add { fetch: false } => AtomicSyntax::Lock("+"),
            Self::Or { fetch: false } => AtomicSyntax::Lock("|"),
            Self::And { fetch: false } => AtomicSyntax::Lock("&"),
            Self::Xor { fetch: false } => AtomicSyntax::Lock("^"),
            Self::Add { fetch: true } => AtomicSyntax::Fetch("atomic_fetch_add"),
            Self::Or { fetch: true } => AtomicSyntax::Fetch("atomic_fetch_or"),
            Self::And { fetch: true } => AtomicSyntax::Fetch("atomic_fetch_and"),
            Self::Xor { fetch: true } => AtomicSyntax::Fetch("atomic_fetch_xor"),
            Self::Xchg => AtomicSyntax::Xchg,
            Self::CmpXchg => AtomicSyntax::CmpXchg,
        }
    }
}

/// The exchange functions' names.
pub(crate) const XCHG: [(&str, Size); 2] = [("xchg_64", Size::B8), ("xchg32_32", Size::B4)];
/// The compare-exchange functions' names.
pub(crate) const CMPXCHG: [(&str, Size); 2] = [("cmpxchg_64", Size::B8), ("cmpxchg32_32", Size::B4)];

/// One instruction, where it stands (for functions' names), and the names.
struct Line<'a> {
    insn: &'a Insn,
    place: Option<(usize, &'a [Insn])>,
    names: &'a Names<'a>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.insn {
            Insn::Alu { width, op, dst, src } => {
                write!(f, "{} {}= {}", r(width, dst), op.symbol(), operand(width, src))
            }
            Insn::Neg { width, dst } => write!(f, "{0} = -{0}", r(width, dst)),
            Insn::MovSx { width, from, dst, src } => {
                write!(f, "{} = (s{}){}", r(width, dst), from.bits(), r(width, src))
            }
            Insn::AddrSpaceCast { dst, src, to, from } => {
                write!(f, "{dst} = addr_space_cast({src}, {to:#x}, {from:#x})")
            }
            Insn::Endian { order, size, dst } => {
                let name = match order {
                    ByteOrder::ToLittle => "le",
                    ByteOrder::ToBig => "be",
                    ByteOrder::Swap => "bswap",
                };
                write!(f, "{dst} = {name}{} {dst}", size.bits())
            }
            Insn::LoadImm64 { dst, value } => {
                write!(f, "{dst} = ")?;
                self.imm64(f, value)?;
                f.write_str(" ll")
            }
            Insn::LoadImm64Tail => f.write_str("// second slot of the 64-bit immediate load"),
            Insn::Load { size, signed, dst, base, offset } => {
                let sign = if signed { 's' } else { 'u' };
                write!(f, "{dst} = *({sign}{} *)({base}{})", size.bits(), Spaced(offset.into()))
            }
            Insn::Store { size, base, offset, src } => {
                let src = operand(Width::W64, src);
                write!(f, "*(u{} *)({base}{}) = {src}", size.bits(), Spaced(offset.into()))
            }
            Insn::Atomic { op, size, base, offset, src } => atomic(f, op, size, base, offset, src),
            Insn::LoadAcquire { size, dst, base, offset } => {
                let dst = r(sub_register(size), dst);
                write!(f, "{dst} = load_acquire((u{} *)({base}{}))", size.bits(), Spaced(offset.into()))
            }
            Insn::StoreRelease { size, base, offset, src } => {
                let src = r(sub_register(size), src);
                write!(f, "store_release((u{} *)({base}{}), {src})", size.bits(), Spaced(offset.into()))
            }
            Insn::LoadPacket { size, base, imm } => {
                write!(f, "r0 = *(u{} *)skb[", size.bits())?;
                match base {
                    PacketBase::Absolute => write!(f, "{}]", Hex(imm.into())),
                    PacketBase::Indirect(reg) if imm == 0 => write!(f, "{reg}]"),
                    PacketBase::Indirect(reg) => write!(f, "{reg}{}]", Spaced(imm.into())),
                }
            }
            Insn::Jump { offset, long } => {
                let name = if long { "gotol" } else { "goto" };
                write!(f, "{name} {}", Signed(offset.into()))
            }
            Insn::JumpIf { width, cond, dst, src, offset } => {
                let (dst, src) = (r(width, dst), operand(width, src));
                write!(f, "if {dst} {} {src} goto {}", cond.symbol(), Signed(offset.into()))
            }
            Insn::MayGoto { offset } => write!(f, "may_goto {}", Signed(offset.into())),
            Insn::Call { target } => self.call(f, target),
            Insn::CallReg { reg } => write!(f, "callx {reg}"),
            Insn::Exit => f.write_str("exit"),
        }
    }
}

impl Line<'_> {
    fn call(&self, f: &mut fmt::Formatter<'_>, target: CallTarget) -> fmt::Result {
        match target {
            CallTarget::Helper(number) => match (self.names)(Symbol::Helper(number)) {
                Some(name) => write!(f, "call {name}#{number}"),
                None => write!(f, "call {}", Hex(number.cast_signed().into())),
            },
            CallTarget::Local(distance) => match self.function(distance) {
                Some(name) => write!(f, "call {name}"),
                None => write!(f, "call pc{}", Signed(distance.into())),
            },
            CallTarget::Kfunc { id, object } => {
                write!(f, "call kfunc[{}", self.named(Symbol::Kfunc { id, object }, id.into()))?;
                match object {
                    0 => f.write_str("]"),
                    _ => write!(f, ", {object}]"),
                }
            }
        }
    }

    fn imm64(&self, f: &mut fmt::Formatter<'_>, value: Imm64) -> fmt::Result {
        match value {
            Imm64::Value(value) => write!(f, "{}", Hex(value.cast_signed())),
            Imm64::MapFd(fd) => write!(f, "map_fd[{}]", self.named(Symbol::MapFd(fd), fd.into())),
            Imm64::MapFdValue { fd, offset } => {
                write!(f, "map_fd_value[{}]+{offset:#x}", self.named(Symbol::MapFd(fd), fd.into()))
            }
            Imm64::Variable { id, object: 0 } => write!(f, "var[{id}]"),
            Imm64::Variable { id, object } => write!(f, "var[{id}, {object}]"),
            Imm64::Function(distance) => match self.function(distance) {
                Some(name) => write!(f, "func[{name}]"),
                None => write!(f, "func[{}]", Signed(distance.into())),
            },
            Imm64::Map(map) => write!(f, "map[{}]", self.named(Symbol::Map(map), map.into())),
            Imm64::MapValue { map, offset } => {
                write!(f, "map_value[{}]+{offset:#x}", self.named(Symbol::Map(map), map.into()))
            }
        }
    }

    /// `name#number` where there is a name, else the number.
    fn named(&self, symbol: Symbol, number: i64) -> String {
        match (self.names)(symbol) {
            Some(name) => format!("{name}#{number}"),
            None => number.to_string(),
        }
    }

    /// The name of the function that starts that many slots after the next instruction, if the listing
    /// prints its label.
    fn function(&self, distance: i32) -> Option<String> {
        let (slot, insns) = self.place?;
        let target = usize::try_from(i64::try_from(slot).ok()? + 1 + i64::from(distance)).ok()?;
        match insns.get(target)? {
            Insn::LoadImm64Tail => None,
            _ => (self.names)(Symbol::Function(target)),
        }
    }
}

fn atomic(
    f: &mut fmt::Formatter<'_>,
    op: AtomicOp,
    size: Size,
    base: Reg,
    offset: i16,
    src: Reg,
) -> fmt::Result {
    let (bits, offset) = (size.bits(), Spaced(offset.into()));
    let width = sub_register(size);
    let name = |names: [(&'static str, Size); 2]| if size == Size::B8 { names[0].0 } else { names[1].0 };
    match op.syntax() {
        AtomicSyntax::Lock(symbol) => {
            write!(f, "lock *(u{bits} *)({base}{offset}) {symbol}= {}", r(width, src))
        }
        AtomicSyntax::Fetch(name) => {
            write!(f, "{0} = {name}((u{bits} *)({base}{offset}), {0})", r(width, src))
        }
        AtomicSyntax::Xchg => write!(f, "{0} = {1}({base}{offset}, {0})", r(width, src), name(XCHG)),
        AtomicSyntax::CmpXchg => {
            let (old, src) = (r(width, Reg::R0), r(width, src));
            write!(f, "{old} = {}({base}{offset}, {old}, {src})", name(CMPXCHG))
        }
    }
}

/// How a register is written that holds a value of that size.
fn sub_register(size: Size) -> Width {
    if size == Size::B8 { Width::W64 } else { Width::W32 }
}

/// A register as an operand of that width: `w1` or `r1`.
fn r(width: Width, reg: Reg) -> Sub {
    Sub { width, reg }
}

/// A second operand of that width.
fn operand(width: Width, operand: Operand) -> SubOperand {
    SubOperand { width, operand }
}

struct SubOperand {
    width: Width,
    operand: Operand,
}

impl fmt::Display for SubOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operand {
            Operand::Reg(reg) => write!(f, "{}", r(self.width, reg)),
            Operand::Imm(imm) => write!(f, "{}", Hex(imm.into())),
        }
    }
}

#[derive(Clone, Copy)]
struct Sub {
    width: Width,
    reg: Reg,
}

impl fmt::Display for Sub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.width == Width::W32 { 'w' } else { 'r' };
        write!(f, "{letter}{}", self.reg.number())
    }
}

/// `0x1`, `-0x1`
struct Hex(i64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{:#x}", self.0.unsigned_abs())
    }
}

/// `+0x1`, `-0x1`
struct Signed(i64);

impl fmt::Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        write!(f, "{sign}{:#x}", self.0.unsigned_abs())
    }
}

/// ` + 0x1`, ` - 0x1`
struct Spaced(i64);

impl fmt::Display for Spaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        write!(f, " {sign} {:#x}", self.0.unsigned_abs())
    }
}
