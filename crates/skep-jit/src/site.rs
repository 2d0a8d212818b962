//! Tail calls whose target the host changes while the code runs.
//!
//! Where the verifier knows the map and the index in every path, the call is one branch in the program's text, which can be
//! replaced by one store ([`skep_text::Pokes::branch`]):
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
//! A stub is a text of its own that never changes. So whoever comes to the site either goes on behind it or does everything
//! that a tail call is, up to its end: there is no state in which the frame is gone and nothing is jumped to. To change
//! the element make another stub, poke, and drop the old one once nobody can be in it.

use skep_text::{Arena, BRANCH_BYTES, Text};

use crate::Compiled;
use crate::arch::Native;
use crate::arch::port::Arch;

/// What a program has to do with tail calls.
#[derive(Clone, Debug)]
pub(crate) struct TailCalls {
    /// Those that it makes by branches that are replaced.
    pub(crate) sites: Box<[Site]>,
    /// Where it is entered by tail calls, behind an adapter where it needs one; in bytes from the start of the text.
    pub(crate) entry: u32,
    /// Whether it needs the environment as its third argument there, as from a host.
    pub(crate) environment: bool,
    /// The length that it needs as its second argument there.
    pub(crate) length: Option<u32>,
}

/// A tail call by a branch that is replaced while the code runs.
#[derive(Clone, Debug)]
pub struct Site {
    /// Index of the map, in the order of the [`Linkage`](skep_abi::Linkage).
    pub(crate) map: u32,
    /// Index of its element.
    pub(crate) index: u32,
    /// Where the branch is, in bytes from the start of the text.
    pub(crate) offset: u32,
    /// What a stub does before it jumps; `None` where the branch leads to the target itself.
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

    /// Where the branch is, in bytes from the start of [`Compiled::text`]. It does nothing at first.
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// The stub by which this site of that program enters another one, which is given what this one was, at its
    /// [tail entry](TailEntry::address). It is to be the target of the site's branch alone, and to be kept until nobody can
    /// be in it. `None` where the branch is to lead to the entry itself.
    ///
    /// # Errors
    ///
    /// As [`Arena::stub`]: where there is no room, or the entry is out of reach.
    pub fn stub(&self, of: &Compiled, arena: &Arena, entry: usize) -> Result<Option<Text>, skep_text::Error> {
        let Some(code) = &self.code else { return Ok(None) };
        let behind = of.text().address() + self.offset() + BRANCH_BYTES;
        arena.stub(code, &[entry, behind]).map(Some)
    }
}

/// Where tail calls enter a program. Valid as long as it and the [`Compiled`] that it was made from are kept.
#[derive(Debug)]
pub struct TailEntry {
    address: usize,
    /// Where it is not the program's own: what gives the program its arguments.
    _adapter: Option<Text>,
}

impl TailEntry {
    /// Its address, to be jumped to by sites, stubs and entries of tables of programs that are given the same, and by nobody
    /// else.
    pub fn address(&self) -> usize {
        self.address
    }
}

impl Compiled {
    /// Its tail calls by branches that are replaced while it runs.
    pub fn sites(&self) -> &[Site] {
        &self.tail_calls.sites
    }

    /// Makes the entry for tail calls. A program that makes none itself, and needs what only a host passes, gets a small text
    /// in front of its own.
    ///
    /// # Errors
    ///
    /// As [`Arena::stub`].
    pub fn tail_entry(&self, arena: &Arena) -> Result<TailEntry, skep_text::Error> {
        let TailCalls { entry, environment, length, .. } = self.tail_calls;
        let address = self.text().address() + entry as usize;
        let code = Native::adapter(environment, length);
        if code.is_empty() {
            return Ok(TailEntry { address, _adapter: None });
        }
        let adapter = arena.stub(&code, &[address])?;
        Ok(TailEntry { address: adapter.address(), _adapter: Some(adapter) })
    }
}
