//! What the host chooses: how the code is hardened.

/// Hardening of the code, which costs some time.
///
/// Each option is a defence against an attacker who has found another bug in the process and tries to misuse this code.
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
}
