//! The interface of a backend: operations on BPF registers, which it turns into machine code.
//!
//! All code outside the backends uses these traits only, so every machine has the same operations.

use std::fmt::Debug;

use skep_abi::{ArenaLink, InlineArray, MAX_TAIL_CALLS, ProgramTable, RunEnv};
use skep_isa::{AluOp, AtomicOp, Cond, Operand, Reg, RegSet, Size, Width};

use crate::error::Error;
use crate::layout::{Assembly, Encoding, Label};
use crate::options::Options;
use crate::watch::Watch;

pub(crate) mod bulk;
pub(crate) mod operand;

use bulk::Bulk;
use operand::{Address, Modifier};

/// A target architecture: its constants, capability queries and encodings. Emission is in [`Emitter`].
pub(crate) trait Arch: Encoding {
    /// Turns operations on BPF registers into machine code.
    type Emitter<'a>: Emitter<'a, Self>;
    /// Instructions beyond the architecture's first version that the code may use.
    type Features: Copy + Debug + PartialEq;

    /// Its name, as `std::env::consts::ARCH` has it.
    const NAME: &'static str;
    /// The features of its newest processors.
    const NEWEST: Self::Features;
    /// Whether arithmetic has a separate destination operand.
    const THREE_OPERANDS: bool;
    /// Whether the lower half of a register can be an index.
    const EXTENDS_INDEX: bool;

    /// Whether the second operand of the operation may be in memory.
    fn takes_memory(op: AluOp) -> bool;

    /// Whether a load or store of that size computes the address by itself.
    fn is_addressable(address: Address, size: Size) -> bool;

    /// Whether loads and stores of the address are longer than those of its base.
    fn is_long(address: Address) -> bool;

    /// Whether the operation can shift or extend its second operand in this way.
    fn takes_modifier(op: AluOp, width: Width, modifier: Modifier) -> bool;

    /// The code of a stub around a function of a program that counts tail calls, in front of a jump to the function's
    /// own code.
    fn watch(watch: &Watch) -> Vec<u8>;

    /// The adapter through which tail calls enter a program that makes none: it sets the third argument to the
    /// environment, if the program takes that, and the second one to a length.
    fn adapter(environment: bool, length: Option<u32>) -> Vec<u8>;
}

/// What is known of the code's address before it has a place.
#[derive(Clone, Debug)]
pub(crate) struct Home(Option<std::ops::Range<u64>>);

impl Home {
    /// Somewhere in this range of addresses.
    pub(crate) fn within(range: std::ops::Range<u64>) -> Self {
        Self(Some(range))
    }

    /// Anywhere.
    #[cfg(test)]
    pub(crate) fn anywhere() -> Self {
        Self(None)
    }

    /// The most bytes that there can be between the code and an address.
    pub(crate) fn farthest(&self, address: u64) -> u64 {
        self.0
            .as_ref()
            .map_or(u64::MAX, |range| address.abs_diff(range.start).max(address.abs_diff(range.end)))
    }
}

/// All operations of a backend.
pub(crate) trait Emitter<'a, A: Arch>:
    Arithmetic + Memory + Bulks + Arenas + Branches + Calls + Frames + Guards
{
    /// An emitter of code that will lie in `home`.
    fn new(code: Assembly<A>, features: A::Features, options: Options, home: &'a Home) -> Self;

    /// The code so far.
    fn code(&mut self) -> &mut Assembly<A>;

    /// From now on functions count tail calls in the lowest bits of the environment's address ([`LEFT`]): the register
    /// then holds address and count.
    fn count_tail_calls(&mut self);

    /// The code.
    ///
    /// # Errors
    ///
    /// If a constant is hidden behind a number that is not random.
    fn finish(self) -> Result<Assembly<A>, Error>;

    /// Sets the live-out registers of the next operation, and whether the function's exit follows it.
    fn next(&mut self, live_out: RegSet, exits: bool);

    /// Control may also come from elsewhere: flags are unknown, and every register is in its usual place.
    fn join(&mut self);

    /// An instruction that stops the process; it is never reached.
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

    /// `dst op= src`. `live` are the registers that are live afterwards. Constant divisors are as
    /// [`crate::reduce`] leaves them.
    fn alu(&mut self, op: AluOp, width: Width, dst: Reg, src: Operand, live: RegSet);

    /// `dst = a op src`, where [`Arch::THREE_OPERANDS`]. `src` may name `dst`, whose old value it means then.
    fn alu3(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, src: Operand);

    /// `dst = address`; with 32 bits, the sum is computed in 32-bit arithmetic.
    fn add3(&mut self, width: Width, dst: Reg, address: Address);

    /// `dst op= *(width *)address`, for the operations of [`Arch::takes_memory`].
    fn alu_load(&mut self, op: AluOp, width: Width, dst: Reg, address: Address);

    /// `dst = a * imm`
    fn mul3(&mut self, width: Width, dst: Reg, a: Reg, imm: i32);

    /// `dst` = `src` rotated to the left by `count`, which is neither 0 nor the width.
    fn rotate(&mut self, width: Width, dst: Reg, src: Reg, count: u8);

    /// `dst = a op modifier(b)`, as [`Arch::takes_modifier`] allows.
    fn alu_modified(&mut self, op: AluOp, width: Width, dst: Reg, a: Reg, b: (Reg, Modifier));

    /// `dst` = the bits of `a` from `low` on, `bits` of them; where [`Arch::THREE_OPERANDS`].
    fn field(&mut self, width: Width, dst: Reg, a: Reg, low: u8, bits: u8);

    /// `dst = addend + a * b`, or with `minus` the difference; where [`Arch::THREE_OPERANDS`].
    fn multiply_add(&mut self, minus: bool, width: Width, dst: Reg, factors: (Reg, Reg), addend: Reg);

    /// Swaps the lowest `size` bytes and zero-extends them. `clean` means that the bits above are zero.
    fn swap_bytes(&mut self, size: Size, dst: Reg, clean: bool);
}

/// Loads, stores and atomic operations.
///
/// The verifier has proved every access; nothing is checked.
pub(crate) trait Memory {
    /// `dst = *(size *)address`
    fn load(&mut self, size: Size, signed: bool, dst: Reg, address: Address);

    /// The same from any address; if it faults, `dst = 0`. For the instruction in this slot.
    fn probe(&mut self, slot: usize, size: Size, signed: bool, dst: Reg, address: Address);

    /// `*(size *)address = src`
    fn store(&mut self, size: Size, address: Address, src: Operand);

    /// Whether a pair of neighbours of that size can be loaded or stored at once, the lower one at the address.
    fn moves_pairs(&self, size: Size, address: Address) -> bool;

    /// Loads two neighbours into two registers. The first is not the base; the second is not the first.
    fn load_pair(&mut self, size: Size, dst: (Reg, Reg), address: Address);

    /// Stores two registers or zeroes as neighbours.
    fn store_pair(&mut self, size: Size, address: Address, src: (Operand, Operand));

    /// As [`Memory::load`], with acquire ordering.
    fn load_acquire(&mut self, size: Size, dst: Reg, address: Address);

    /// As [`Memory::store`], with release ordering.
    fn store_release(&mut self, size: Size, address: Address, src: Reg);

    /// `*(width *)(base + offset) op= src`; with `fetch`, `src` becomes what was there before. `live` are the
    /// registers that are live afterwards.
    fn atomic(&mut self, op: AtomicOp, width: Width, place: (Reg, i16), src: Reg, live: RegSet);
}

/// Loops that are done in bulk.
pub(crate) trait Bulks {
    /// Does as many rounds of the loop as sixteen bytes at a time allow, and leaves at least one. Control continues
    /// after it. Only scratch registers and those of [`Bulk::writes`] change.
    fn bulk(&mut self, bulk: &Bulk);
}

/// Accesses to a program's arena ([`ArenaLink`]).
///
/// The lower half of the base and the offset say how far from the arena's base the access is. A store to a page that is
/// not there does nothing, and neither does an atomic operation, which fetches 0. Atomic operations, load-acquires and
/// store-releases that are not aligned do the same. The base is not `r10`.
pub(crate) trait Arenas {
    /// `dst = *(size *)(base + offset)`
    fn arena_load(&mut self, arena: ArenaLink, size: Size, signed: bool, dst: Reg, place: (Reg, i16));

    /// The same with acquire ordering.
    fn arena_load_acquire(&mut self, arena: ArenaLink, size: Size, dst: Reg, place: (Reg, i16));

    /// `*(size *)(base + offset) = src`
    fn arena_store(&mut self, arena: ArenaLink, size: Size, place: (Reg, i16), src: Operand);

    /// The same with release ordering.
    fn arena_store_release(&mut self, arena: ArenaLink, size: Size, place: (Reg, i16), src: Reg);

    /// As [`Memory::atomic`].
    fn arena_atomic(
        &mut self,
        arena: ArenaLink,
        op: AtomicOp,
        width: Width,
        place: (Reg, i16),
        src: Reg,
        live: RegSet,
    );

    /// `dst` = the lower half of `src` with that upper half, or 0 if the lower half is 0.
    fn cast_to_user(&mut self, arena: ArenaLink, dst: Reg, src: Reg);
}

/// The register that receives what memory held before an atomic operation.
pub(crate) fn receiver(op: AtomicOp, src: Reg) -> Option<Reg> {
    match op {
        AtomicOp::CmpXchg => Some(Reg::R0),
        op => op.fetches().then_some(src),
    }
}

/// Jumps.
pub(crate) trait Branches {
    /// `goto target`
    fn jump(&mut self, target: Label);

    /// `if dst cond src goto target`, or where `inverted`, if not.
    fn jump_if(&mut self, width: Width, what: (Reg, Cond, Operand), inverted: bool, target: Label);

    /// `if *(u64 *)(r10 + budget) == 0 goto target; else *(u64 *)(r10 + budget) -= 1`
    fn may_goto(&mut self, budget: i32, target: Label);
}

/// The bit of the tail-call count that is set when no tail call is left. The count is in the lowest bits of the
/// environment's address, which are zero in the address itself.
pub(crate) const NONE_LEFT: u32 = 6;

/// The count at the beginning of a run. Each tail call adds one, and the last one sets [`NONE_LEFT`].
pub(crate) const LEFT: u32 = (1 << NONE_LEFT) - MAX_TAIL_CALLS;

const _: () = assert!(RunEnv::ALIGN == 2 << NONE_LEFT);

/// Where a tail call finds the entry of its target.
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
/// environment with the count in its register. Control continues after it if there is no target or no tail call
/// is left.
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

    /// `dst` = whether an exception is unwinding ([`RunEnv::thrown`]); 0 if not.
    fn thrown(&mut self, dst: Reg);

    /// Sets or clears [`RunEnv::thrown`]. Only scratch registers change.
    fn set_thrown(&mut self, thrown: bool);

    /// Subtracts this number, at most [`skep_abi::MAX_WEIGHT`], from [`RunEnv::units`]; control goes to the label if
    /// that makes it negative. Only scratch registers change.
    fn charge(&mut self, weight: u32, negative: Label);

    /// Adds one to the 64-bit number at that address, in several steps. Only scratch registers change.
    fn add_one(&mut self, address: u64);

    /// Calls the function at that address with the environment, in a function that calls. Control goes to the label if
    /// it returns 0. Only scratch registers change.
    fn poll(&mut self, address: u64, go_on: Label);

    /// `dst` = an address of this process, in the shortest form.
    fn mov_address(&mut self, dst: Reg, address: u64);

    /// A tail call through a branch that is replaced while the code runs
    /// ([`Fragment::Site`](crate::layout::Fragment::Site)). Without a frame it leads to the target. Otherwise it leads
    /// to the returned code, which ends with two branches of [`Encoding::SITE`] bytes that are still to be written: to
    /// the target, and back to after the site. `behind` is bound after all emitted code.
    fn tail_call_site(&mut self, behind: Label) -> Option<Vec<u8>>;

    /// A tail call whose target is looked up when it runs. `extended` means that the bits above the 32 of the index are
    /// zero.
    fn tail_call(&mut self, target: Target, extended: bool);

    /// `r0` = the address of the element with this index, which is in range.
    fn lookup_known(&mut self, array: &InlineArray, index: u32);

    /// `r0` = the address of the element whose 4-byte index `r2` points to, 0 if there is none. With `missing`, control
    /// then goes to that label; `true` means that `r0` is read there.
    fn lookup(&mut self, array: &InlineArray, missing: Option<(Label, bool)>);
}

/// What the frame of a function must hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameSpec {
    /// Bytes of BPF stack.
    pub(crate) stack_bytes: u32,
    /// How many of them, from `r10` down, are zeroed on entry.
    pub(crate) zeroed: u32,
    /// Whether `r10` is named.
    pub(crate) uses_stack: bool,
    /// Whether there are calls that leave the function's code.
    pub(crate) calls: bool,
    /// The registers that are written.
    pub(crate) written: RegSet,
    /// Offset from `r10` of the `may_goto` budget. The slot is extra, above `-stack_bytes`, and not part of the
    /// program's stack.
    pub(crate) budget: Option<i32>,
}

/// Entry and exit of functions.
pub(crate) trait Frames {
    /// The prologue of a function. `first` for the entry of the program; `environment` if that takes the environment
    /// from its third argument.
    fn enter(&mut self, frame: &FrameSpec, first: bool, environment: bool);

    /// The entry at which hosts call a program that counts tail calls; its first function is at `target`. Functions
    /// preserve the register that holds the count, through tail calls too, so this entry saves and restores the host's
    /// value.
    fn enter_run(&mut self, target: Label);

    /// The entry at which helpers call the function at `target`: a separate function with five arguments and the
    /// environment as the sixth.
    fn enter_callback(&mut self, target: Label);

    /// The epilogue of a function. It may bind `label`, the same one for all exits of a function.
    fn exit(&mut self, label: Label);
}

/// What keeps a path that the processor takes by mistake from leaving traces. Emitters note in a register of their own
/// whether the path is one ([`Options::mask_speculation`]).
pub(crate) trait Guards {
    /// Sets every bit of a register if the path is a mistake of the processor, else nothing. Not for `r10`.
    fn mask(&mut self, reg: Reg);

    /// Loads behind it read what stores in front of it wrote.
    fn order_stores(&mut self);
}
