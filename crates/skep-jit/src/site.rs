//! Tail calls whose target the host changes while the code runs.
//!
//! If the verifier knows the map and the index on every path, the call is one branch in the program's text, which one
//! store replaces ([`skep_text::Pokes::branch`]):
//!
//! ```text
//!   in a function with a frame                          in one without
//!
//!   empty   site:  nop                                         none left? goto back
//!           back:  ...                                         count
//!                                                       site:  nop
//!   full    site:  jmp stub   stub:  none left? jmp back       count back
//!           back:  ...               count              back:  ...
//!                                    undo the frame
//!                                    jmp the target     site:  jmp the target
//! ```
//!
//! A stub is a separate text that never changes. So a thread that reaches the site either continues after it or
//! completes the whole tail call: in no state is the frame gone without a jump to a target. To change the element, make
//! another stub, poke, and drop the old one after a grace period.

/// A program's tail calls and its entry for them.
#[derive(Clone, Debug)]
pub(crate) struct TailCalls {
    /// Its tail calls through branches that are replaced.
    pub(crate) sites: Box<[Site]>,
    /// Offset of its entry for tail calls, in bytes from the start of the text; an adapter may come before it.
    pub(crate) entry: u32,
    /// Whether that entry takes the environment as its third argument, as an entry for hosts does.
    pub(crate) environment: bool,
    /// The length that this entry takes as its second argument.
    pub(crate) length: Option<u32>,
    /// By function: the branch at its entry, if it has one, in bytes from the start of the text.
    pub(crate) entries: Box<[Option<u32>]>,
}

/// A tail call through a branch that is replaced while the code runs.
#[derive(Clone, Debug)]
pub struct Site {
    /// Index of the map, in the order of the [`Linkage`](skep_abi::Linkage).
    pub(crate) map: u32,
    /// Index of its element.
    pub(crate) index: u32,
    /// Where the branch is, in bytes from the start of the text.
    pub(crate) offset: u32,
    /// The code of a stub before its jump; `None` if the branch leads to the target itself.
    pub(crate) code: Option<Box<[u8]>>,
}

impl Site {
    /// Index of the map, in the order of the [`Linkage`](skep_abi::Linkage).
    pub fn map(&self) -> u32 {
        self.map
    }

    /// Index of the element: below the number of entries that the linkage gave.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Where the branch is, in bytes from the start of [`Compiled::text`](crate::Compiled::text). It does nothing at
    /// first.
    pub fn offset(&self) -> usize {
        self.offset as usize
    }
}
