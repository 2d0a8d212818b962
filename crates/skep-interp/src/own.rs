//! Checking mode's view of the runtime's own kernel functions, by [`skep_abi::OWN_KFUNCS`].
//!
//! An iterator is bytes of the program's stack that only its functions may touch:
//!
//! ```text
//!   new ----> next ----> destroy        r0 of `next`: null, or an element that may be read until `destroy`
//!   bytes are the iterator's            bytes are the program's again, and not written
//! ```
//!
//! Allocated objects are the runtime's: it says whether an address is in one ([`crate::Regions::with_objects`]).
//!
//! Violations that it finds: functions that receive no iterator of their kind, accesses of the program to bytes of
//! an iterator, elements used after the end, iterators that are never destroyed.

use std::sync::atomic::Ordering;

use skep_abi::{AttachTo, Context, KfuncFlags, OwnIterator, OwnKfunc, OwnParam, OwnReturn};
use skep_isa::{Reg, Size};
use skep_verifier::Object;

use crate::exec::AccessKind;
use crate::memory;
use crate::regions::{Found, Region, Rights};
use crate::registers::{self, RegSet};
use crate::violation::{MemoryAccess, Reason};
use crate::watch::Checking;

/// Bytes of a dynptr.
const DYNPTR: u64 = 16;

/// An iterator between `new` and `destroy`.
#[derive(Debug)]
pub(crate) struct Live {
    /// Its address.
    at: u64,
    of: OwnIterator,
    /// Its elements so far, each once.
    elements: Vec<(Object, Region)>,
}

impl Live {
    /// Whether it overlaps the bytes `start..end`.
    fn overlaps(&self, start: u64, end: u64) -> bool {
        start < self.at + u64::from(self.of.bytes) && self.at < end
    }
}

impl Checking<'_, '_> {
    /// Whether an access that overlaps an iterator is one to an element in it; `None` if it overlaps no iterator.
    pub(crate) fn check_iterators(&self, access: MemoryAccess) -> Option<Result<(), Reason>> {
        let MemoryAccess { address, bytes, kind } = access;
        if !self.iterators.iter().any(|live| live.overlaps(address, address.saturating_add(bytes))) {
            return None;
        }
        // SAFETY: the context is valid by the contract of `Interpreter::run_checked`.
        let found = unsafe { self.memory.find(address, bytes) };
        let is_element = kind == AccessKind::Read && found == Found::Region(Rights::READ);
        Some(if is_element { Ok(()) } else { Err(Reason::Iterator(access)) })
    }

    /// Checks the arguments of one of the runtime's own functions.
    pub(crate) fn check_own_call(&mut self, own: &OwnKfunc, args: [u64; 5]) -> Result<(), Reason> {
        let looked_at = own.params.iter().zip(&Reg::ALL[1..]);
        let looked_at = looked_at.filter(|(param, _)| **param != OwnParam::Ignored).map(|(_, reg)| *reg);
        let read = looked_at.fold(RegSet::of(&[]), |read, reg| read.with(reg));
        if let Some(reg) = read.without(self.written).first() {
            return Err(Reason::UninitialisedRegister(reg));
        }
        for (number, (param, value)) in (1..).zip(own.params.iter().zip(args)) {
            if *param == OwnParam::Buffer && value != 0 {
                // Its size is the next argument, of 32 bits.
                let bytes = args.get(usize::from(number)).map_or(0, |bytes| u64::from(*bytes as u32));
                if bytes > 0 {
                    self.check(MemoryAccess { address: value, bytes, kind: AccessKind::Write })?;
                }
            }
            let memory = match *param {
                // The number of words is the next argument, of 32 bits.
                OwnParam::Words { most } if value != 0 => {
                    let words = args.get(usize::from(number)).map_or(0, |words| *words as u32);
                    (words <= most).then_some((8 * u64::from(words), AccessKind::Read))
                }
                OwnParam::Out(bytes) => Some((bytes.into(), AccessKind::Write)),
                _ => None,
            };
            if let Some((bytes, kind)) = memory.filter(|(bytes, _)| *bytes > 0) {
                self.check(MemoryAccess { address: value, bytes, kind })?;
            }
            let fits = match *param {
                OwnParam::Iterator(of) if has(own, KfuncFlags::ITER_NEW) => self.is_free(of, value),
                OwnParam::Iterator(of) => self.iterators.iter().any(|live| (live.at, live.of) == (value, of)),
                OwnParam::Owned | OwnParam::Counted | OwnParam::Node => self.is_object(value),
                OwnParam::Mask | OwnParam::Machine(_) => self.is_opaque(value),
                OwnParam::Less | OwnParam::Later => self.is_function(value),
                OwnParam::Map => !self.maps.of(value).is_empty(),
                OwnParam::Context => value == self.context || Some(value) == self.socket_buffer(),
                // Those that are lent to a callback are elsewhere.
                OwnParam::Dynptr => {
                    value.is_multiple_of(8) && (number == 1 || self.stack(value, DYNPTR).is_some())
                }
                _ => true,
            };
            if !fits {
                return Err(Reason::Argument { number, value });
            }
        }
        Ok(())
    }

    /// Handles the return of one of the runtime's own functions.
    pub(crate) fn own_call_returned(&mut self, own: &OwnKfunc, args: [u64; 5], result: u64) {
        self.written = self.written.without(registers::arguments().with(Reg::R0));
        if own.returns != OwnReturn::Nothing {
            self.written = self.written.with(Reg::R0);
        }
        if own.returns == OwnReturn::BytesOrNull
            && result != 0
            && let Some(size) = own.params.iter().position(|param| *param == OwnParam::Size)
        {
            self.memory.learn_memory(result, u64::from(args[size] as u32));
        }
        let Some(of) = own.iterator() else { return };
        if has(own, KfuncFlags::ITER_NEW) {
            self.iterators.push(Live { at: args[0], of, elements: Vec::new() });
        } else if has(own, KfuncFlags::ITER_DESTROY) {
            self.end_iterators(|live| live.at == args[0]);
        } else if result != 0
            && let Some(live) = self.iterators.iter_mut().find(|live| live.at == args[0])
        {
            let region = Region { start: result, bytes: of.element.into(), rights: Rights::READ };
            let element = (Object::Memory, region);
            if !live.elements.contains(&element) {
                live.elements.push(element);
                self.memory.lend(&[element]);
            }
        }
    }

    /// The socket buffer to which the context of a hook of the packet filter leads.
    fn socket_buffer(&self) -> Option<u64> {
        let hook = Context::Arguments { of: AttachTo::Netfilter };
        (self.program_type().context == hook).then(|| {
            // SAFETY: the context has two words, by the contract of `Interpreter::run_checked`.
            unsafe { memory::load(self.context + 8, Size::B8, Ordering::Relaxed) }
        })
    }

    /// Whether an allocated object is there, or a part of one.
    fn is_object(&self, at: u64) -> bool {
        self.regions.objects.is_some_and(|objects| objects(at, 0).is_some_and(|rights| rights.read))
    }

    /// Whether a CPU mask, or an object of the runtime's machine, is there. Calls take its address, not its bytes.
    pub(crate) fn is_opaque(&self, at: u64) -> bool {
        self.regions.objects.is_some_and(|objects| objects(at, 0).is_some_and(|rights| !rights.read))
    }

    /// An iterator in the current function's stack that is not destroyed yet, by address.
    pub(crate) fn left_iterator(&self) -> Option<u64> {
        let (bottom, top) = self.current_stack()?;
        self.iterators.iter().find(|live| live.overlaps(bottom, top)).map(|live| live.at)
    }

    /// Forgets the iterators in a stack frame that was left.
    pub(crate) fn end_iterators_in(&mut self, bottom: u64, top: u64) {
        self.end_iterators(|live| live.overlaps(bottom, top));
    }

    fn end_iterators(&mut self, ends: impl Fn(&Live) -> bool) {
        for live in self.iterators.extract_if(.., |live| ends(live)) {
            self.memory.take_back(&live.elements);
        }
    }

    /// Whether an iterator may be constructed there: in a live function's stack, without another iterator. Its
    /// bytes become uninitialised.
    fn is_free(&mut self, of: OwnIterator, at: u64) -> bool {
        let bytes = u64::from(of.bytes);
        if !at.is_multiple_of(8) || self.iterators.iter().any(|live| live.overlaps(at, at + bytes)) {
            return false;
        }
        self.stack(at, bytes).is_some_and(|cells| {
            cells.fill(false);
            true
        })
    }
}

fn has(own: &OwnKfunc, flag: KfuncFlags) -> bool {
    own.known().is_some_and(|known| known.flags.has(flag))
}
