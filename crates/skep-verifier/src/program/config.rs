//! The configuration of a verification.

use skep_abi::{HelperProto, ShownStruct};
use skep_btf::Btf;

/// What the host allows and provides.
pub struct Config<'a> {
    /// Prototypes of callable helpers by number. Program types restrict those of Linux's helpers.
    pub helpers: &'a dyn Fn(u32) -> Option<&'a HelperProto>,
    /// The types of the host's functions and structures. Without them, programs that refer to any are refused.
    pub btf: Option<&'a Btf>,
    /// The most instructions that may be walked, over all paths. A refusal of a large program may be confirmed by a
    /// second walk of as many.
    pub max_walked: u64,
    /// The most bytes that explored states may take.
    pub max_state_bytes: usize,
    /// Whether memory accesses must be aligned to their size.
    pub strict_alignment: bool,
    /// Whether addresses may leave all programs as numbers, as Linux allows its root user (`CAP_PERFMON`). Programs
    /// that trace the host may always let them out. Memory is as safe as without: a number never becomes an address.
    pub privileged: bool,
    /// Whether no address may leave any program, not even those that trace the host. It overrides `privileged`.
    pub confined: bool,
    /// Whether the host takes tables of functions of any structure of its types. A kernel takes those for which it
    /// has a
    /// structure `bpf_struct_ops_NAME`, and of programs under a licence compatible with the GPL.
    pub any_table: bool,
    /// Whether CPU masks, tasks and cgroups are a runtime's own ([`skep_abi::CPU_MASK`], [`skep_abi::TASK`] and its
    /// kin), whatever types the host has. Without the host's types CPU masks always are.
    pub own_objects: bool,
    /// The members of the host's structures that are there; `None` for all. A load of another is refused.
    pub shown: Option<&'a [ShownStruct]>,
    /// What the verification makes use of.
    pub abilities: Abilities,
    /// The most states to keep for [`crate::Verified::recorded`]; 0 for none. For tests: each takes a kilobyte or two.
    pub max_recorded: usize,
}

/// What a verification makes use of, beyond what the verifiers of all releases of Linux do. A program that is accepted
/// without an ability needs no verifier that has it.
///
/// Taking one away never makes an unsafe program safe: something is refused, or known less precisely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Abilities {
    /// What Linux refuses or does not see, although it is safe.
    ///
    /// Numbers without bounds are added to pointers if the sum does not matter, and numbers are subtracted from stack
    /// addresses; the stack is accessed at addresses that are not multiples of the size, and the context through moved
    /// pointers; addresses of the stack, context and packet are not null. Bounds are known of quotients, remainders,
    /// negated and swapped numbers, and of shifts whose count is masked. A number is narrowed by comparisons of its
    /// sum with a constant. Constants side by side in the stack are read as one number. All helpers take memory in
    /// packets. The index of `bpf_loop` and legacy packet loads are bounded. Equality with the packet's end says how
    /// far it reaches, and packet pointers keep their ranges when a variable number is added. Only 32 bits of results
    /// count. A function may return an address in its caller's stack. Any bytes of an allocated object may be
    /// accessed at once.
    pub lenient: bool,
    /// Which stack bytes that were never written may be read.
    pub unwritten_stack: Unwritten,
    /// A pointer in the stack stays one when a helper has read it.
    pub passed_pointers: bool,
    /// A pointer that equals an object is not null.
    pub equal_objects: bool,
    /// What is known of numbers in the stack.
    pub spills: Spills,
    /// A number in the stack and the register that it came from are narrowed together, and a load of another size than
    /// the store's knows what it can.
    pub linked_spills: bool,
    /// A comparison of two numbers that are no constants narrows both.
    pub compared_numbers: bool,
    /// Numbers are known to be unequal by their bounds, and a number that is not equal to its least or greatest
    /// possible value is narrowed.
    pub unequal_numbers: bool,
    /// A copy of the lower half of a number is narrowed with it.
    pub linked_halves: bool,
    /// A way is not walked if ranges of different kinds contradict each other there, such as a signed and an unsigned
    /// one, or those of a number and of its copy. Of a signed and an unsigned range that both cross the sign, only
    /// the half in both counts.
    pub contradictions: bool,
    /// Memory that is no map's value, no packet and no stack may be a key.
    pub memory_keys: bool,
    /// Code that no jump or call leads to may be there, and calls that no path makes are not looked at.
    pub dead_code: bool,
}

/// Stack bytes that were never written and may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unwritten {
    /// None.
    None,
    /// Those above the lowest ones that were written.
    AboveWritten,
    /// Any.
    Any,
}

/// What is known of numbers in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spills {
    /// Constants of eight bytes, if they were stored from a register, and zeroes.
    Constants,
    /// Numbers of eight bytes with their bounds, if they were stored from a register, and zeroes.
    Words,
    /// Numbers of any size with their bounds, if they were stored from a register, and zeroes.
    Registers,
    /// All that was stored.
    All,
}

impl Config<'_> {
    /// Whether CPU masks are a runtime's own.
    pub(crate) fn has_own_objects(&self) -> bool {
        self.own_objects || self.btf.is_none()
    }

    /// The type of the objects of a runtime's machine whose structure has that name.
    pub(crate) fn machine_type(&self, name: &str) -> Option<u32> {
        skep_abi::machine_type(name).filter(|_| self.own_objects)
    }
}

impl Default for Abilities {
    /// Every ability.
    fn default() -> Self {
        Self {
            lenient: true,
            unwritten_stack: Unwritten::Any,
            passed_pointers: true,
            equal_objects: true,
            spills: Spills::All,
            linked_spills: true,
            compared_numbers: true,
            unequal_numbers: true,
            linked_halves: true,
            contradictions: true,
            memory_keys: true,
            dead_code: true,
        }
    }
}

impl Default for Config<'_> {
    /// Linux's helpers, a million instructions, 64 MiB of states, any alignment, no privileges.
    fn default() -> Self {
        Self {
            helpers: &|id| skep_abi::linux_helper(id),
            btf: None,
            max_walked: 1_000_000,
            max_state_bytes: 64 << 20,
            strict_alignment: false,
            privileged: false,
            confined: false,
            any_table: false,
            own_objects: false,
            shown: None,
            abilities: Abilities::default(),
            max_recorded: 0,
        }
    }
}
