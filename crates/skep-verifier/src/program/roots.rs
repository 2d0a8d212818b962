//! Where walks begin: the program itself, and what the host calls later.

use crate::domain::ordered_set::OrderedSet;
use crate::program::cfg::Cfg;

/// Where a walk begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Root {
    /// The function.
    pub(crate) function: u32,
    pub(crate) of: RootKind,
}

/// What a walk is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RootKind {
    /// The program itself.
    Program,
    /// What happens when a timer in a value of that map expires.
    Timer { map: u32 },
    /// What a work queue in a value of that map calls. It may sleep, whatever the program.
    Work { map: u32 },
    /// A global function.
    Global,
    /// The function that an exception ends in.
    Exception,
}

impl Root {
    pub(crate) const PROGRAM: Self = Self { function: 0, of: RootKind::Program };
}

/// Where every walk of the program begins; the program itself is the first.
pub(crate) fn first_roots(cfg: &Cfg) -> OrderedSet<Root> {
    let exception = |function| Root { function: function as u32, of: RootKind::Exception };
    std::iter::once(Root::PROGRAM).chain(cfg.exception_callback.map(exception)).collect()
}
