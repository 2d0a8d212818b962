//! Decoded instructions: one enum in which an instruction that does not exist cannot be written down.

use std::fmt;

/// A BPF register, `r0` to `r10`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(u8);

impl Reg {
    /// Return value of calls and programs.
    pub const R0: Self = Self(0);
    /// First argument; a program's context.
    pub const R1: Self = Self(1);
    /// Second argument.
    pub const R2: Self = Self(2);
    /// Third argument.
    pub const R3: Self = Self(3);
    /// Fourth argument.
    pub const R4: Self = Self(4);
    /// Fifth argument.
    pub const R5: Self = Self(5);
    /// Preserved over calls.
    pub const R6: Self = Self(6);
    /// Preserved over calls.
    pub const R7: Self = Self(7);
    /// Preserved over calls.
    pub const R8: Self = Self(8);
    /// Preserved over calls.
    pub const R9: Self = Self(9);
    /// Frame pointer, read-only: the end of the function's stack frame.
    pub const R10: Self = Self(10);
    /// Every register in order.
    pub const ALL: [Self; 11] = [
        Self::R0,
        Self::R1,
        Self::R2,
        Self::R3,
        Self::R4,
        Self::R5,
        Self::R6,
        Self::R7,
        Self::R8,
        Self::R9,
        Self::R10,
    ];

    /// The register of that number; `None` above 10.
    pub const fn new(number: u8) -> Option<Self> {
        if number <= 10 { Some(Self(number)) } else { None }
    }

    /// Its number, 0 to 10.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its number as an index into tables of eleven.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether an operation works on the lower 32 bits (and clears the upper) or on all 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

impl Width {
    /// Number of bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::W32 => 32,
            Self::W64 => 64,
        }
    }
}

/// Size of a memory access or of the value that a sign extension starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Size {
    /// One byte.
    B1,
    /// Two bytes.
    B2,
    /// Four bytes.
    B4,
    /// Eight bytes.
    B8,
}

impl Size {
    /// Every size, ascending.
    pub const ALL: [Self; 4] = [Self::B1, Self::B2, Self::B4, Self::B8];

    /// Number of bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B1 => 1,
            Self::B2 => 2,
            Self::B4 => 4,
            Self::B8 => 8,
        }
    }

    /// Number of bits.
    pub const fn bits(self) -> u32 {
        self.bytes() * 8
    }

    /// The size of that many bytes; `None` unless 1, 2, 4 or 8.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            1 => Some(Self::B1),
            2 => Some(Self::B2),
            4 => Some(Self::B4),
            8 => Some(Self::B8),
            _ => None,
        }
    }
}

/// The second operand of arithmetic, jumps and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// An immediate, sign-extended to the operation's width.
    Imm(i32),
}

/// Two-operand arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AluOp {
    /// `dst += src`
    Add,
    /// `dst -= src`
    Sub,
    /// `dst *= src`
    Mul,
    /// `dst /= src`, unsigned; 0 where `src` is 0.
    Div,
    /// `dst s/= src`, signed; 0 where `src` is 0, `dst` where the quotient overflows.
    Sdiv,
    /// `dst |= src`
    Or,
    /// `dst &= src`
    And,
    /// `dst <<= src`, the count masked to the width.
    Lsh,
    /// `dst >>= src`, logical, the count masked to the width.
    Rsh,
    /// `dst s>>= src`, arithmetic, the count masked to the width.
    Arsh,
    /// `dst %= src`, unsigned; `dst` where `src` is 0.
    Mod,
    /// `dst s%= src`, signed; `dst` where `src` is 0, 0 where the quotient overflows.
    Smod,
    /// `dst ^= src`
    Xor,
    /// `dst = src`
    Mov,
}

/// Byte-order conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ByteOrder {
    /// To little-endian: on little-endian machines a truncation.
    ToLittle,
    /// To big-endian: on little-endian machines a swap and a truncation.
    ToBig,
    /// Unconditional swap (v4).
    Swap,
}

/// Conditions of conditional jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cond {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// unsigned `>`
    Gt,
    /// unsigned `>=`
    Ge,
    /// unsigned `<`
    Lt,
    /// unsigned `<=`
    Le,
    /// signed `>`
    Sgt,
    /// signed `>=`
    Sge,
    /// signed `<`
    Slt,
    /// signed `<=`
    Sle,
    /// `dst & src` is not zero
    Set,
}

/// Read-modify-write operations on memory, sequentially consistent where they fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtomicOp {
    /// `*mem += src`; with fetch, `src` receives the old value.
    Add {
        /// Whether the old value is fetched into `src`.
        fetch: bool,
    },
    /// `*mem |= src`
    Or {
        /// Whether the old value is fetched into `src`.
        fetch: bool,
    },
    /// `*mem &= src`
    And {
        /// Whether the old value is fetched into `src`.
        fetch: bool,
    },
    /// `*mem ^= src`
    Xor {
        /// Whether the old value is fetched into `src`.
        fetch: bool,
    },
    /// Exchanges `*mem` and `src`.
    Xchg,
    /// Where `*mem == r0`, stores `src`; `r0` receives the old value either way (zero-extended).
    CmpXchg,
}

/// What a 64-bit immediate load loads (the `src` field of its first slot, RFC 9669 section 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Imm64 {
    /// src 0: the 64-bit number.
    Value(u64),
    /// src 1: the map of this file descriptor, as loaders for Linux write it.
    MapFd(i32),
    /// src 2: the address `offset` bytes into the only value of the map of this file descriptor.
    MapFdValue {
        /// File descriptor of the map.
        fd: i32,
        /// Bytes from the start of the value.
        offset: u32,
    },
    /// src 3: the address of a platform variable of this BTF id (next slot: BTF object).
    Variable {
        /// Its id.
        id: i32,
        /// The next slot's immediate.
        object: i32,
    },
    /// src 4: the address of the function that starts this many slots after the next instruction
    /// (counted from the first slot plus one, as in local calls).
    Function(i32),
    /// src 5: the map of this index in the object's map list. What skep's loader produces.
    Map(u32),
    /// src 6: the address `offset` bytes into the value of the map of this index. What skep's loader produces.
    MapValue {
        /// Index of the map.
        map: u32,
        /// Bytes from the start of the value.
        offset: u32,
    },
}

/// The target of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallTarget {
    /// src 0: the helper of this number.
    Helper(u32),
    /// src 1: the function that starts this many slots after the next instruction.
    Local(i32),
    /// src 2: the function of this BTF id, from the BTF object of the index in `offset`.
    Kfunc {
        /// BTF id.
        id: i32,
        /// Index of the BTF object, 0 for the kernel's own.
        object: i16,
    },
}

/// Where a legacy packet load counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketBase {
    /// The packet's start.
    Absolute,
    /// The packet's start plus this register.
    Indirect(Reg),
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insn {
    /// Two-operand arithmetic, moves included.
    Alu {
        /// Width of operands and result; 32-bit results clear the upper half.
        width: Width,
        /// The operation.
        op: AluOp,
        /// Destination and first operand.
        dst: Reg,
        /// Second operand.
        src: Operand,
    },
    /// `dst = -dst`
    Neg {
        /// Width.
        width: Width,
        /// Operand and destination.
        dst: Reg,
    },
    /// Sign-extending move: `dst = (sN)src` (v4).
    MovSx {
        /// Width that is extended to; 32 clears the upper half.
        width: Width,
        /// Size extended from: `B1` or `B2`, or `B4` with 64 bits.
        from: Size,
        /// Destination.
        dst: Reg,
        /// Source.
        src: Reg,
    },
    /// Linux's `addr_space_cast`: the pointer `src` of address space `from` as a pointer of address space `to`. Space
    /// 0 is what loads and stores use; in space 1 the addresses of an arena are those that the host's own code sees.
    AddrSpaceCast {
        /// Destination.
        dst: Reg,
        /// Source.
        src: Reg,
        /// The address space of the result.
        to: u16,
        /// The address space of the source.
        from: u16,
    },
    /// Byte-order conversion of the lower 16, 32 or 64 bits; the upper bits are cleared.
    Endian {
        /// Which.
        order: ByteOrder,
        /// `B2`, `B4` or `B8`.
        size: Size,
        /// Operand and destination.
        dst: Reg,
    },
    /// First slot of a 64-bit immediate load.
    LoadImm64 {
        /// Destination.
        dst: Reg,
        /// What is loaded.
        value: Imm64,
    },
    /// Second slot of a 64-bit immediate load; never executed, never a jump's target.
    LoadImm64Tail,
    /// `dst = *(size *)(base + offset)`
    Load {
        /// Bytes that are read.
        size: Size,
        /// Sign-extended to 64 bits instead of zero-extended (v4; never with `B8`).
        signed: bool,
        /// Destination.
        dst: Reg,
        /// Base address.
        base: Reg,
        /// Offset in bytes.
        offset: i16,
    },
    /// `*(size *)(base + offset) = src`
    Store {
        /// Bytes that are written.
        size: Size,
        /// Base address.
        base: Reg,
        /// Offset in bytes.
        offset: i16,
        /// What is written.
        src: Operand,
    },
    /// Atomic read-modify-write of `*(size *)(base + offset)`.
    Atomic {
        /// Which.
        op: AtomicOp,
        /// `B4` or `B8`.
        size: Size,
        /// Base address.
        base: Reg,
        /// Offset in bytes.
        offset: i16,
        /// Operand, and destination of the old value where one is fetched (32-bit ones zero-extended).
        src: Reg,
    },
    /// `dst = load_acquire((size *)(base + offset))`, zero-extended (v4).
    LoadAcquire {
        /// Bytes that are read.
        size: Size,
        /// Destination.
        dst: Reg,
        /// Base address.
        base: Reg,
        /// Offset in bytes.
        offset: i16,
    },
    /// `store_release((size *)(base + offset), src)` (v4).
    StoreRelease {
        /// Bytes that are written.
        size: Size,
        /// Base address.
        base: Reg,
        /// Offset in bytes.
        offset: i16,
        /// What is written.
        src: Reg,
    },
    /// Legacy packet load, network order to host order: `r0 = packet[base + imm]`; `r6` holds the context,
    /// `r1` to `r5` are lost, and the program returns 0 where the packet is too short.
    LoadPacket {
        /// `B1`, `B2` or `B4`.
        size: Size,
        /// Where it counts from.
        base: PacketBase,
        /// Offset in bytes.
        imm: i32,
    },
    /// `goto`: to the slot `offset` after the next.
    Jump {
        /// Slots from the next instruction.
        offset: i32,
        /// Encoded as `gotol`, with a 32-bit offset (v4). Without it the offset fits 16 bits.
        long: bool,
    },
    /// `if dst <cond> src goto`
    JumpIf {
        /// Width of the comparison.
        width: Width,
        /// Condition.
        cond: Cond,
        /// First operand.
        dst: Reg,
        /// Second operand.
        src: Operand,
        /// Slots from the next instruction.
        offset: i16,
    },
    /// Linux's `may_goto`: to the slot `offset` after the next once the budget of iterations is spent.
    MayGoto {
        /// Slots from the next instruction.
        offset: i16,
    },
    /// A call: arguments in `r1` to `r5`, which are lost; result in `r0`.
    Call {
        /// The target.
        target: CallTarget,
    },
    /// A call of the function whose address is in a register (`callx`).
    CallReg {
        /// The register.
        reg: Reg,
    },
    /// Returns from a function or ends the program, with `r0` as the result.
    Exit,
}

impl Insn {
    /// For jumps, the signed distance in slots from the next instruction to the target.
    pub fn jump_offset(&self) -> Option<i32> {
        match *self {
            Self::Jump { offset, .. } => Some(offset),
            Self::JumpIf { offset, .. } | Self::MayGoto { offset } => Some(offset.into()),
            _ => None,
        }
    }

    /// Whether control can pass to the next instruction.
    pub fn falls_through(&self) -> bool {
        !matches!(self, Self::Jump { .. } | Self::Exit)
    }
}
