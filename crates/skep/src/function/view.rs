//! Memory of a program without copies.
//!
//! A program may pass the same memory twice, other threads may change maps meanwhile, and a callback changes what the
//! program likes. A Rust reference to bytes allows none of these; atomic bytes allow all of them.

use super::argument::{Argument, Registers, slice};
use super::memory::{self, Plain};
use skep_abi::{Access, ArgKind};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU8;

/// Memory that the function reads where it is: for few bytes of much memory, or for memory that a callback changes.
/// Where a function looks at all bytes, `&[u8]` is as good.
///
/// Programs on other threads may write maps at any time. Each aligned word of 8 bytes is read as a whole.
#[derive(Clone, Copy)]
pub struct MemoryView<'a> {
    start: u64,
    len: usize,
    call: PhantomData<&'a [AtomicU8]>,
}

/// Memory that the function reads and writes where it is. As [`MemoryView`], which it gives.
pub struct MemoryViewMut<'a>(MemoryView<'a>);

impl<'a> MemoryView<'a> {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The byte at `at`, if it has so many.
    #[inline]
    pub fn at(&self, at: usize) -> Option<u8> {
        self.read(at)
    }

    /// A value in its bytes from `at` on, at any alignment; `None` if it has fewer.
    #[inline]
    pub fn read<T: Plain>(&self, at: usize) -> Option<T> {
        // SAFETY: in range, and the verifier proved all of it readable.
        self.has(at, size_of::<T>()).then(|| unsafe { memory::read_value(self.start + at as u64) })
    }

    /// Copies its bytes from `at` on. Returns `false` and copies nothing if it has fewer.
    #[must_use]
    pub fn copy_to(&self, at: usize, out: &mut [u8]) -> bool {
        let inside = self.has(at, out.len());
        if inside {
            // SAFETY: in range, and the verifier proved all of it readable. The program does not see `out`.
            unsafe { memory::read(self.start + at as u64, out) };
        }
        inside
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len];
        // It has as many.
        let _ = self.copy_to(0, &mut all);
        all
    }

    /// Its bytes, each read when the iterator reaches it.
    pub fn bytes(self) -> impl Iterator<Item = u8> + use<'a> {
        (0..self.len).filter_map(move |at| self.at(at))
    }

    fn has(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl<'a> MemoryViewMut<'a> {
    /// The same memory, to read.
    pub fn view(&self) -> MemoryView<'_> {
        self.0
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes a value to its bytes from `at` on, at any alignment. Returns `false` and writes nothing if it has fewer.
    #[must_use]
    #[inline]
    pub fn write<T: Plain>(&mut self, at: usize, value: T) -> bool {
        self.copy_from(at, memory::bytes(&value))
    }

    /// Copies bytes into it, from `at` on. Returns `false` and copies nothing if it has fewer.
    #[must_use]
    pub fn copy_from(&mut self, at: usize, bytes: &[u8]) -> bool {
        let inside = self.0.has(at, bytes.len());
        if inside {
            // SAFETY: in range, and the verifier proved all of it writable. The program does not see `bytes`.
            unsafe { memory::write(bytes, self.0.start + at as u64) };
        }
        inside
    }

    /// Its bytes, which can be read and written by several references at a time. Use relaxed loads and stores.
    pub fn as_atomics(&self) -> &'a [AtomicU8] {
        let start = std::ptr::with_exposed_provenance::<AtomicU8>(self.0.start as usize);
        if self.is_empty() {
            return &[];
        }
        // SAFETY: the verifier proved these bytes readable and writable, and the program's memory lives as long as the
        // call. All others access them by machine code or atomically.
        unsafe { std::slice::from_raw_parts(start, self.len()) }
    }
}

impl fmt::Debug for MemoryView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryView").field("len", &self.len).finish()
    }
}

impl fmt::Debug for MemoryViewMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryViewMut").field("len", &self.len()).finish()
    }
}

/// The registers of a view.
#[derive(Clone, Copy, Debug)]
pub struct HeldView {
    start: u64,
    len: usize,
}

impl HeldView {
    fn take(registers: &mut Registers) -> Self {
        Self { start: registers.take(), len: registers.take() as usize }
    }

    fn view<'a>(self) -> MemoryView<'a> {
        MemoryView { start: self.start, len: self.len, call: PhantomData }
    }
}

// SAFETY: reads the bytes that the two registers name.
unsafe impl Argument for MemoryView<'_> {
    type Lent<'a> = MemoryView<'a>;
    type Held = HeldView;
    const KINDS: &'static [ArgKind] = &slice(Access::Read, false);
    unsafe fn hold(registers: &mut Registers) -> HeldView {
        HeldView::take(registers)
    }
    fn lend(held: &mut HeldView) -> MemoryView<'_> {
        held.view()
    }
}

// SAFETY: reads and writes the bytes that the two registers name.
unsafe impl Argument for MemoryViewMut<'_> {
    type Lent<'a> = MemoryViewMut<'a>;
    type Held = HeldView;
    const KINDS: &'static [ArgKind] = &slice(Access::ReadWrite, false);
    unsafe fn hold(registers: &mut Registers) -> HeldView {
        HeldView::take(registers)
    }
    fn lend(held: &mut HeldView) -> MemoryViewMut<'_> {
        MemoryViewMut(held.view())
    }
}
