//! What a backend implements: operations on BPF registers, of which it makes machine code.
//!
//! Everything outside of the backends is written against these traits, so that the compiler sees to it that
//! there are the same operations on each machine.

use std::fmt::Debug;

use skep_abi::{InlineArray, MAX_TAIL_CALLS, ProgramTable, RunEnv};
use skep_isa::{AluOp, AtomicOp, Cond, Operand, Reg, RegSet, Size, Width};

use crate::Options;
use crate::address::{Address, Home};
use crate::layout::{Assembly, Label};
use crate::operands::Twist;
use crate::plan::FunctionPlan;

/// A machine that programs are compiled for: what of it is neither state nor an operation on registers.
pub(crate) trait Arch: Copy + Debug + 'static {
    /// Turns operations on BPF registers into machine code.
    type Emitter<'a>: Emitter<'a, Self>;
    /// Instructions beyond the architecture's first version that the code may use.
    type Features: Copy + Debug + PartialEq;
    /// When a jump is taken, by the machine's own conditions.
    type Jump: Copy + Debug + PartialEq;

    /// Its name, as `std::env::consts::ARCH` has it.
    const NAME: &'static str;
    /// The features of its newest processors.
    const NEWEST: Self::Features;
    /// What every instruction's address and length are multiples of.
    const STEP: usize;
    /// Whether arithmetic has a destination of its own.
    const THREE_OPERANDS: bool;
    /// Whether the lower half of a register can be an index.
    const EXTENDS_INDEX: bool;

    /// Whether the second operand of the operation may be in memory.
    fn takes_memory(op: AluOp) -> bool;

    /// Whether a load or store of that size computes the address by itself.
    fn is_addressable(address: Address, size: Size) -> bool;

    /// Whether loads and stores of the address are longer than those of its base.
    fn is_long(address: Address) -> bool;

    /// Whether the second operand of the operation may be a register on which something is done first.
    fn takes_twist(op: AluOp, width: Width, twist: Twist) -> bool;

    /// The shortest length of a jump in bytes.
    fn jump_start(jump: Self::Jump) -> u32;

    /// The length that a jump over `distance` bytes from its start needs, given that it had `len` when the
    /// distance was taken; never less than `len`. `forward` says that the target is behind the jump.
    fn jump_len(jump: Self::Jump, distance: i64, forward: bool, len: u32) -> u32;

    /// The greatest length of a jump.
    fn jump_longest(jump: Self::Jump) -> u32;

    /// How many instructions a jump of that length is.
    fn jump_count(len: u32) -> u32;

    /// Writes a jump over `distance` bytes from its start into the bytes of the length that was chosen for it;
    /// `None` where it is too far for every form.
    fn write_jump(jump: Self::Jump, distance: i64, out: &mut [u8]) -> Option<()>;

    /// Completes four bytes of an instruction, which will be at address `place`, with the way to `target`; `None`
    /// where that is too far.
    fn write_distance(place: u64, target: u64, out: &mut [u8]) -> Option<()>;

    /// Padding before a loop or function of `size` bytes at offset `start`, so that what the processor fetches
    /// together lies together.
    fn head_padding(start: u32, size: u32) -> u32;

    /// Bytes of a branch that can be replaced while it runs.
    const SITE: u32;

    /// Padding before such a branch that would otherwise be at offset `start` of a text.
    fn site_padding(start: u32) -> u32;

    /// Code in front of the entry of a program that makes no tail calls, by which tail calls enter it: it is given the
    /// environment as its third argument, where it needs that, and a length as its second.
    fn adapter(environment: bool, length: Option<u32>) -> Vec<u8>;

    /// Fills with as few instructions as possible that do nothing.
    fn write_padding(out: &mut [u8]);
}

/// All operations of a backend.
pub(crate) trait Emitter<'a, A: Arch>: Arithmetic + Memory + Branches + Calls + Frames {
    /// An emitter of code that will lie in `home`.
    fn new(code: Assembly<A>, features: A::Features, options: Options, home: &'a Home) -> Self;

    /// The code so far.
    fn code(&mut self) -> &mut Assembly<A>;

    /// Says that functions count tail calls in the lowest bits of the environment's address ([`LEFT`]): the register is no
    /// address then, but one and the count.
    fn count_tail_calls(&mut self);

    /// The code.
    fn finish(self) -> Assembly<A>;

    /// Says which registers are needed behind what is emitted next, and whether that is followed by the
    /// function's exit.
    fn next(&mut self, needed: RegSet, exits: bool);

    /// Control comes here from elsewhere too: nothing is known of flags, and every register is where it is
    /// otherwise.
    fn join(&mut self);

    /// An instruction that stops the process: control never comes here.
    fn trap(&mut self);
}

/// Arithmetic.
pub(crate) trait Arithmetic {
    /// `dst = value`
    fn mov_imm(&mut self, dst: Reg, value: u64);

    /// `dst = src`, with 32 bits zero-extended.
    fn mov_reg(&mut self, width: Width, dst: Reg, src: Reg);

    /// `dst` = the zero-extended lowest bytes of `src`.
    fn zero_extend(&mut self, from: Size, dst: Reg, src: Reg);

    /// `dst` = the sign-extended lowest bytes of `src`.
    fn sign_extend(&mut self, width: Width, from: Size, dst: Reg, src: Reg);

    /// `dst = -dst`
    fn neg(&mut self, width: Width, dst: Reg);

    /// `dst op= src`. `live` are the registers that are needed afterwards. Constant divisors are as
    /// [`crate::reduce`] leaves them.
    fn alu(&mut self, op: AluOp, width: Width, dst: Reg, src: Operand, live: RegSet);

    /// `dst = a op src`, where [`Arch::THREE_OPERANDS`]. `src` may name `dst`, whose old value it means then.
    fn alu3(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, src: Operand);

    /// `dst = address`, of which 32 bits are 32-bit arithmetic.
    fn add3(&mut self, width: Width, dst: Reg, address: Address);

    /// `dst op= *(width *)address`, for the operations of [`Arch::takes_memory`].
    fn alu_load(&mut self, op: AluOp, width: Width, dst: Reg, address: Address);

    /// `dst = a * imm`
    fn mul3(&mut self, width: Width, dst: Reg, a: Reg, imm: i32);

    /// `dst` = `src` rotated to the left by `count`, which is neither 0 nor the width.
    fn rotate(&mut self, width: Width, dst: Reg, src: Reg, count: u8);

    /// `dst = a op twist(b)`, as [`Arch::takes_twist`] allows.
    fn alu_twisted(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, b: (Reg, Twist));

    /// `dst` = the bits of `a` from `low` on, `bits` of them; where [`Arch::THREE_OPERANDS`].
    fn field(&mut self, width: Width, dst: Reg, a: Reg, low: u8, bits: u8);

    /// `dst = addend + a * b`, or with `minus` the difference; where [`Arch::THREE_OPERANDS`].
    fn multiply_add(&mut self, minus: bool, width: Width, dst: Reg, factors: (Reg, Reg), addend: Reg);

    /// Swaps the bytes of the lowest `size` bytes and zero-extends them. `clean` says that nothing lies above
    /// them.
    fn swap_bytes(&mut self, size: Size, dst: Reg, clean: bool);
}

/// Loads, stores and atomic operations.
///
/// The verifier has proved every access; nothing is checked.
pub(crate) trait Memory {
    /// `dst = *(size *)address`
    fn load(&mut self, size: Size, signed: bool, dst: Reg, address: Address);

    /// The same from an address that may be any; where it faults, `dst = 0`. For the instruction in that slot.
    fn probe(&mut self, slot: usize, size: Size, signed: bool, dst: Reg, address: Address);

    /// `*(size *)address = src`
    fn store(&mut self, size: Size, address: Address, src: Operand);

    /// Whether a pair of neighbours of that size can be loaded or stored at once, the lower one at the address.
    fn moves_pairs(&self, size: Size, address: Address) -> bool;

    /// Loads two neighbours into two registers, of which the first is not the base and the second not the first.
    fn load_pair(&mut self, size: Size, dst: (Reg, Reg), address: Address);

    /// Stores two registers or zeroes as neighbours.
    fn store_pair(&mut self, size: Size, address: Address, src: (Operand, Operand));

    /// As [`Memory::load`], before everything that follows.
    fn load_acquire(&mut self, size: Size, dst: Reg, address: Address);

    /// As [`Memory::store`], after everything that precedes.
    fn store_release(&mut self, size: Size, address: Address, src: Reg);

    /// `*(width *)(base + offset) op= src`; with `fetch`, `src` becomes what was there before. `live` are the
    /// registers that are needed afterwards.
    fn atomic(&mut self, op: AtomicOp, width: Width, place: (Reg, i16), src: Reg, live: RegSet);
}

/// Jumps.
pub(crate) trait Branches {
    /// `goto target`
    fn jump(&mut self, target: Label);

    /// `if dst cond src goto target`, or where `inverted`, if not.
    fn jump_if(&mut self, width: Width, what: (Reg, Cond, Operand), inverted: bool, target: Label);

    /// `if the 8 bytes at r10 + rounds are 0 goto target`, else they are counted down.
    fn may_goto(&mut self, rounds: i32, target: Label);
}

/// Of the lowest bits of the environment's address, which are zero in it, the one that says that no tail call is left.
pub(crate) const NONE_LEFT: u32 = 6;

/// What they are at the beginning of a run: each tail call adds one, and the last sets [`NONE_LEFT`].
pub(crate) const LEFT: u32 = (1 << NONE_LEFT) - MAX_TAIL_CALLS;

const _: () = assert!(RunEnv::ALIGN == 2 << NONE_LEFT);

/// Where the entry of a tail call's target is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// At this address.
    At(u64),
    /// In this table, at the index in `r3`.
    Table(ProgramTable),
    /// In the table whose address is in `r2`, at the index in `r3`.
    Found,
}

/// Calls.
///
/// A tail call leaves the function as an exit does, and jumps to the target's tail entry with `r1` as it is and the
/// environment with the count in its register. What comes behind it is reached where there is no target, or no tail call
/// left.
pub(crate) trait Calls {
    /// Calls a function of the program. Arguments are in place already.
    fn call_local(&mut self, target: Label);

    /// Calls a helper, the environment in the sixth argument register.
    fn call_helper(&mut self, address: u64);

    /// Puts that address into [`RunEnv::printed`]. Arguments are in place already.
    fn note_printed(&mut self, address: u64);

    /// `dst` = the address of a label.
    fn mov_label(&mut self, dst: Reg, label: Label);

    /// `r0` = the number of the CPU.
    fn cpu_number(&mut self);

    /// `dst` = whether an exception leaves functions ([`RunEnv::thrown`]): 0 if not.
    fn thrown(&mut self, dst: Reg);

    /// Says that an exception leaves functions from here on, or no more. Of all registers only scratch changes.
    fn set_thrown(&mut self, thrown: bool);

    /// `dst` = an address of this process, in the shortest form.
    fn mov_address(&mut self, dst: Reg, address: u64);

    /// A tail call through a branch that is replaced while the code runs ([`Gap::Site`](crate::layout::Gap::Site)). Where
    /// nothing must be undone it leads to the target; else to the code that is returned, which ends with two branches of
    /// [`Arch::SITE`] bytes still to be written: to the target, and back behind the site. `behind` is bound behind all
    /// that is emitted.
    fn tail_call_site(&mut self, behind: Label) -> Option<Vec<u8>>;

    /// A tail call to what is found when it is made. `extended` says that nothing lies above the 32 bits of the index.
    fn tail_call(&mut self, target: Target, extended: bool);

    /// `r0` = the address of the element whose index is known and in range.
    fn lookup_known(&mut self, array: &InlineArray, index: u32);

    /// `r0` = the address of the element whose 4-byte index `r2` points to, 0 where there is none. Where
    /// `missing` is given, control goes there in that case; with `true`, `r0` is read there.
    fn lookup(&mut self, array: &InlineArray, missing: Option<(Label, bool)>);
}

/// Entry and exit of functions.
pub(crate) trait Frames {
    /// The entry of a function. `first` for the entry of the program, `environment` where that is to fetch it from its third
    /// argument.
    fn enter(&mut self, plan: &FunctionPlan, first: bool, environment: bool);

    /// The entry at which hosts call the program whose first function is at `target`, where tail calls are counted: that one,
    /// and all that are left for by tail calls, preserve the register that they are counted in as it is then, for whoever
    /// comes back.
    fn enter_run(&mut self, target: Label);

    /// The entry at which helpers call the function at `target`: a function of its own, with five arguments and
    /// the environment as the sixth.
    fn enter_callback(&mut self, target: Label);

    /// The exit of a function. `label` is free for its use, the same one for all exits of a function.
    fn exit(&mut self, label: Label);
}
