//! What the host chooses: how the code is hardened, and which optimisations are made.

/// Hardening of the code, which costs some time, and its optimisation.
///
/// Each option but the last is a defence against an attacker who has found another bug in the process and tries to
/// misuse this code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Options {
    /// The entry of each program begins with a landing pad (aarch64: `BTI c`, x86-64: `ENDBR64`). A processor that
    /// checks for them lets no indirect branch go anywhere else; elsewhere these instructions do nothing.
    pub landing_pads: bool,
    /// Functions that save their return address sign it, and check it before they return (aarch64: `PACIASP`,
    /// `AUTIASP`, which do nothing on processors without pointer authentication). x86-64 has no
    /// counterpart.
    pub signed_returns: bool,
    /// Code is never changed once it is installed: tail calls with a known index look up their target in the map's
    /// table, instead of being branches that the host replaces ([`Site`](crate::Site)).
    pub fixed_code: bool,
    /// Each function begins with a branch that does nothing at first. So functions can be replaced and watched while
    /// the program runs ([`Compiled::entry_of`](crate::Compiled::entry_of)). It counts
    /// tail calls as one that makes them does, for those of the functions that replace its own. Not with `fixed_code`.
    pub patchable: bool,
    /// No constant of a program is in its code ([what counts](crate#constants)): each is the exclusive or of two
    /// numbers, one of them random and new in each load. So a program cannot place bytes of its choice in executable
    /// memory.
    pub blind_constants: bool,
    /// A path that the processor takes by mistake reads and writes no memory: each conditional jump notes whether it
    /// leads where it should, and the note is a part of each address (speculative load hardening). Calls of helpers
    /// wait until it is known that they are made. It is for Spectre's variant 1.
    pub mask_speculation: bool,
    /// A load of what the verifier knows to be in the stack waits for the stores before it. It is for Spectre's
    /// variant 4.
    pub order_reloads: bool,
    /// Indirect jumps and calls are made so that the processor predicts no target (x86-64: retpolines). It is for
    /// Spectre's variant 2. aarch64 has no counterpart.
    pub retpolines: bool,
    /// Optimisations across instructions: most of them by default.
    pub passes: Passes,
}

/// Optimisations that rewrite a program before it becomes code. None of them changes what a program does; all but
/// [`loads`](Self::loads) and [`order`](Self::order) make the code longer. With
/// [`blind_constants`](Options::blind_constants), [`mask_speculation`](Options::mask_speculation) or
/// [`order_reloads`](Options::order_reloads) none is made: a program of a stranger is compiled instruction by
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Passes {
    /// A loop whose condition is at its start gets a copy of that at its end.
    pub rotate: bool,
    /// Small loops without calls get up to four copies of their body.
    pub unroll: bool,
    /// Loops that copy, fill or sum up adjacent elements do sixteen bytes at once.
    pub bulk: bool,
    /// Adjacent bytes that are loaded one by one, and put together, are loaded at once.
    pub loads: bool,
    /// The basic blocks of functions with loops are put in the order in which control is likely to go. Off by default.
    pub order: bool,
}

impl Passes {
    /// Every one of them.
    pub const ALL: Self = Self { rotate: true, unroll: true, bulk: true, loads: true, order: true };
    /// None of them: one piece of code for each instruction, in their order.
    pub const NONE: Self = Self { rotate: false, unroll: false, bulk: false, loads: false, order: false };
}

impl Default for Passes {
    /// All but [`order`](Self::order), whose gain was not shown.
    fn default() -> Self {
        Self { order: false, ..Self::ALL }
    }
}

impl Options {
    /// These options with all that is for programs whose authors may attack the process: nothing of a program is in its
    /// code, and the processor predicts nothing that matters.
    #[must_use]
    pub const fn untrusted(self) -> Self {
        Self { blind_constants: true, mask_speculation: true, order_reloads: true, retpolines: true, ..self }
    }
}
