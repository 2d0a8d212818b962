//! Arguments of a host's function, and their registers.

use super::errno::Errno;
use super::memory::{self, Plain};
use crate::image::{Image, Input};
use crate::run_state::StateType;
use skep_abi::{Access, ArgKind, RunEnv, XdpContext};
use skep_maps::Map;

/// The arguments of one call, taken one after another.
#[derive(Debug)]
pub struct Registers {
    values: [u64; 5],
    next: usize,
    env: *mut RunEnv,
}

impl Registers {
    pub(super) fn new(values: [u64; 5], env: *mut RunEnv) -> Self {
        Self { values, next: 0, env }
    }

    /// The environment of the run.
    pub(super) fn env(&self) -> *mut RunEnv {
        self.env
    }

    pub(super) fn take(&mut self) -> u64 {
        let value = self.values.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        value
    }
}

/// An argument of a [`HostFunction`](super::HostFunction). Only this crate implements it.
///
/// # Safety
///
/// `hold` and `give_back` access only memory that `KINDS` makes the verifier prove accessible.
pub unsafe trait Argument {
    /// The value that the function gets, for the time of a call.
    type Lent<'a>;
    #[doc(hidden)]
    type Held;
    #[doc(hidden)]
    const KINDS: &'static [ArgKind];
    /// The state of the run that it is. Functions with such an argument are not called if it `refuses`.
    #[doc(hidden)]
    const STATE: Option<StateType> = None;
    /// # Safety
    ///
    /// The next registers hold what `KINDS` say, in a run whose environment `registers` has.
    #[doc(hidden)]
    unsafe fn hold(registers: &mut Registers) -> Self::Held;
    /// Why the function cannot be called. `None` without `STATE`.
    #[doc(hidden)]
    fn refuses(_held: &Self::Held) -> Option<Errno> {
        None
    }
    #[doc(hidden)]
    fn lend(held: &mut Self::Held) -> Self::Lent<'_>;
    /// # Safety
    ///
    /// As for `hold`, in the same call.
    #[doc(hidden)]
    unsafe fn give_back(_held: Self::Held) {}
}

macro_rules! integers {
    ($($integer:ident)*) => {
        $(
            // SAFETY: no memory.
            unsafe impl Argument for $integer {
                type Lent<'a> = Self;
                type Held = Self;
                const KINDS: &'static [ArgKind] = &[ArgKind::Scalar];
                unsafe fn hold(registers: &mut Registers) -> Self {
                    registers.take() as Self
                }
                fn lend(held: &mut Self) -> Self {
                    *held
                }
            }
        )*
    };
}

integers!(u8 u16 u32 u64 i8 i16 i32 i64);

// SAFETY: no memory.
unsafe impl Argument for bool {
    type Lent<'a> = Self;
    type Held = Self;
    const KINDS: &'static [ArgKind] = &[ArgKind::Scalar];
    unsafe fn hold(registers: &mut Registers) -> Self {
        registers.take() != 0
    }
    fn lend(held: &mut Self) -> Self {
        *held
    }
}

const fn fixed<T>(access: Access) -> ArgKind {
    ArgKind::FixedMemory { access, bytes: size_of::<T>() as u32 }
}

// SAFETY: reads the bytes of one `T`.
unsafe impl<T: Plain> Argument for &T {
    type Lent<'a> = &'a T;
    type Held = T;
    const KINDS: &'static [ArgKind] = &[fixed::<T>(Access::Read)];
    unsafe fn hold(registers: &mut Registers) -> T {
        // SAFETY: the verifier proved it readable for the size of `T`.
        unsafe { memory::read_value(registers.take()) }
    }
    fn lend(held: &mut T) -> &T {
        held
    }
}

/// A copy, and where it goes back to.
#[derive(Debug)]
pub struct Borrowed<T> {
    value: T,
    home: u64,
}

// SAFETY: reads and writes the bytes of one `T`.
unsafe impl<T: Plain> Argument for &mut T {
    type Lent<'a> = &'a mut T;
    type Held = Borrowed<T>;
    const KINDS: &'static [ArgKind] = &[fixed::<T>(Access::ReadWrite)];
    unsafe fn hold(registers: &mut Registers) -> Borrowed<T> {
        let home = registers.take();
        // SAFETY: the verifier proved it readable for the size of `T`.
        Borrowed { value: unsafe { memory::read_value(home) }, home }
    }
    fn lend(held: &mut Borrowed<T>) -> &mut T {
        &mut held.value
    }
    unsafe fn give_back(held: Borrowed<T>) {
        // SAFETY: the verifier proved it writable for the size of `T`.
        unsafe { memory::write(memory::bytes(&held.value), held.home) };
    }
}

/// Memory that the function fills; it cannot read the old contents. It becomes zeroes unless it is [set](Out::set).
#[derive(Debug)]
pub struct Out<'a, T>(&'a mut T);

impl<T: Plain> Out<'_, T> {
    /// Fills it.
    pub fn set(&mut self, value: T) {
        *self.0 = value;
    }
}

// SAFETY: writes the bytes of one `T`.
unsafe impl<T: Plain> Argument for Out<'_, T> {
    type Lent<'a> = Out<'a, T>;
    type Held = Borrowed<T>;
    const KINDS: &'static [ArgKind] = &[fixed::<T>(Access::Write)];
    unsafe fn hold(registers: &mut Registers) -> Borrowed<T> {
        Borrowed { value: memory::zeroed(), home: registers.take() }
    }
    fn lend(held: &mut Borrowed<T>) -> Out<'_, T> {
        Out(&mut held.value)
    }
    unsafe fn give_back(held: Borrowed<T>) {
        // SAFETY: the verifier proved it writable for the size of `T`.
        unsafe { memory::write(memory::bytes(&held.value), held.home) };
    }
}

pub(super) const fn slice(access: Access, nullable: bool) -> [ArgKind; 2] {
    [ArgKind::Memory { access, nullable }, ArgKind::Size { zero: true }]
}

/// The bytes of a memory argument and of the size behind it.
///
/// # Safety
///
/// The verifier proved the first readable for as many bytes as the second says, or it is null with none.
unsafe fn bytes(registers: &mut Registers) -> Borrowed<Vec<u8>> {
    let home = registers.take();
    let mut value = vec![0; registers.take() as usize];
    // SAFETY: by contract.
    unsafe { memory::read(home, &mut value) };
    Borrowed { value, home }
}

// SAFETY: reads the bytes that the two registers name.
unsafe impl Argument for &[u8] {
    type Lent<'a> = &'a [u8];
    type Held = Borrowed<Vec<u8>>;
    const KINDS: &'static [ArgKind] = &slice(Access::Read, false);
    unsafe fn hold(registers: &mut Registers) -> Self::Held {
        // SAFETY: by contract.
        unsafe { bytes(registers) }
    }
    fn lend(held: &mut Self::Held) -> &[u8] {
        &held.value
    }
}

// SAFETY: reads and writes the bytes that the two registers name.
unsafe impl Argument for &mut [u8] {
    type Lent<'a> = &'a mut [u8];
    type Held = Borrowed<Vec<u8>>;
    const KINDS: &'static [ArgKind] = &slice(Access::ReadWrite, false);
    unsafe fn hold(registers: &mut Registers) -> Self::Held {
        // SAFETY: by contract.
        unsafe { bytes(registers) }
    }
    fn lend(held: &mut Self::Held) -> &mut [u8] {
        &mut held.value
    }
    unsafe fn give_back(held: Self::Held) {
        // SAFETY: the verifier proved it writable for its size.
        unsafe { memory::write(&held.value, held.home) };
    }
}

// SAFETY: as for `&[u8]`.
unsafe impl Argument for Option<&[u8]> {
    type Lent<'a> = Option<&'a [u8]>;
    type Held = Borrowed<Vec<u8>>;
    const KINDS: &'static [ArgKind] = &slice(Access::Read, true);
    unsafe fn hold(registers: &mut Registers) -> Self::Held {
        // SAFETY: by contract.
        unsafe { bytes(registers) }
    }
    fn lend(held: &mut Self::Held) -> Option<&[u8]> {
        (held.home != 0).then_some(&held.value)
    }
}

// SAFETY: as for `&mut [u8]`.
unsafe impl Argument for Option<&mut [u8]> {
    type Lent<'a> = Option<&'a mut [u8]>;
    type Held = Borrowed<Vec<u8>>;
    const KINDS: &'static [ArgKind] = &slice(Access::ReadWrite, true);
    unsafe fn hold(registers: &mut Registers) -> Self::Held {
        // SAFETY: by contract.
        unsafe { bytes(registers) }
    }
    fn lend(held: &mut Self::Held) -> Option<&mut [u8]> {
        (held.home != 0).then_some(&mut held.value)
    }
    unsafe fn give_back(held: Self::Held) {
        // SAFETY: the verifier proved it writable for its size, which is 0 where it is null.
        unsafe { memory::write(&held.value, held.home) };
    }
}

// SAFETY: lends the map that the handle is.
unsafe impl Argument for &Map {
    type Lent<'a> = &'a Map;
    type Held = *const Map;
    const KINDS: &'static [ArgKind] = &[ArgKind::Map];
    unsafe fn hold(registers: &mut Registers) -> *const Map {
        registers.take() as *const Map
    }
    fn lend(held: &mut *const Map) -> &Map {
        // SAFETY: the verifier proved it a map's handle, and the running program holds its maps.
        unsafe { &**held }
    }
}

/// The packet that the calling program runs on: no bytes for a program that does not run on one.
#[derive(Debug)]
pub struct PacketView<'a> {
    context: &'a u64,
}

impl PacketView<'_> {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        let (start, end) = self.range();
        (end - start) as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies its bytes from `offset` on. Returns `false` and copies nothing if it has fewer.
    #[must_use]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        let (start, end) = self.range();
        let inside = (offset as u64).checked_add(out.len() as u64).is_some_and(|last| last <= end - start);
        if inside {
            // SAFETY: these bytes lie in the packet, which is the run's.
            unsafe { memory::read(start + offset as u64, out) };
        }
        inside
    }

    fn range(&self) -> (u64, u64) {
        // SAFETY: `hold` has seen that it is a packet's context, which starts with these two fields and has
        // `data <= data_end`.
        let start = unsafe { (*self.context as *const u64).read() };
        // SAFETY: as above.
        let end = unsafe { (*self.context as *const u64).add(1).read() };
        (start, end.max(start))
    }
}

/// Stands for the context of a program without a packet: data and its end.
static NO_PACKET: [u64; 2] = [0; 2];

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(XdpContext, data) == 0 && offset_of!(XdpContext, data_end) == 8);
    assert!(offset_of!(skep_abi::SkbContext, data) == 0 && offset_of!(skep_abi::SkbContext, data_end) == 8);
};

// SAFETY: reads the context and the packet that it names.
unsafe impl Argument for PacketView<'_> {
    type Lent<'a> = PacketView<'a>;
    type Held = u64;
    const KINDS: &'static [ArgKind] = &[ArgKind::Context];
    unsafe fn hold(registers: &mut Registers) -> u64 {
        let context = registers.take();
        // Programs of every type may call, and those that watch functions of a program that runs on a packet: their
        // contexts start with what the programs themselves may have written.
        // SAFETY: the environment is that of the run in progress.
        let (image, own) = unsafe { (Image::of_run(registers.env), (*registers.env).context) };
        match image.input {
            Input::Xdp | Input::Skb if context == own => context,
            _ => NO_PACKET.as_ptr().expose_provenance() as u64,
        }
    }
    fn lend(held: &mut u64) -> PacketView<'_> {
        PacketView { context: held }
    }
}

/// The caller. It takes no register.
#[derive(Debug)]
pub struct Caller<'a> {
    env: &'a *mut RunEnv,
}

impl Caller<'_> {
    /// The name of the program that the host runs, also after a tail call.
    pub fn program(&self) -> &str {
        // SAFETY: the environment is that of the run in progress, which outlives the call.
        unsafe { Image::of_run(*self.env) }.name()
    }

    /// The virtual CPU that it runs on.
    pub fn cpu(&self) -> u32 {
        // SAFETY: the environment is that of the run in progress.
        unsafe { (**self.env).cpu }
    }
}

// SAFETY: reads the run's environment.
unsafe impl Argument for Caller<'_> {
    type Lent<'a> = Caller<'a>;
    type Held = *mut RunEnv;
    const KINDS: &'static [ArgKind] = &[];
    unsafe fn hold(registers: &mut Registers) -> *mut RunEnv {
        registers.env
    }
    fn lend(held: &mut *mut RunEnv) -> Caller<'_> {
        Caller { env: held }
    }
}
