//! The process's key, and a thread's rights for it.
//!
//! Threads that were there before the key have no rights for it, as Linux sets the register up for every program; the
//! thread that asks for the key is given none either. So the key is closed everywhere from the beginning.

use crate::arch;
use crate::error::Error;
use std::io;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// A key of this process, which is never freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(u32);

/// Why there is none, as it was when it was asked for.
#[derive(Clone, Copy)]
enum Lack {
    Support,
    Room,
}

/// The key. All guarded memory has the same one.
pub(crate) fn of_process() -> Result<Key, Error> {
    static KEY: OnceLock<Result<Key, Lack>> = OnceLock::new();
    KEY.get_or_init(allocate).map_err(|lack| match lack {
        Lack::Support => Error::NotSupported,
        Lack::Room => Error::NoKeyLeft,
    })
}

fn allocate() -> Result<Key, Lack> {
    const PKEY_DISABLE_ACCESS: libc::c_ulong = 1;
    if !arch::IS_SUPPORTED {
        return Err(Lack::Support);
    }
    // SAFETY: numbers alone. It fails where processor or kernel have no keys, so afterwards the register is there.
    let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0 as libc::c_ulong, PKEY_DISABLE_ACCESS) };
    match u32::try_from(key) {
        Ok(key @ 1..16) => Ok(Key(key)),
        Ok(_) => Err(Lack::Support),
        // Linux says the same of a machine without keys, whose first request it is.
        Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSPC) && has_register() => {
            Err(Lack::Room)
        }
        Err(_) => Err(Lack::Support),
    }
}

/// Whether the kernel has turned the register on.
fn has_register() -> bool {
    arch::is_on()
}

impl Key {
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The bits of the register that take rights for it away: to access, to write.
    fn bits(self) -> u32 {
        0b11 << (2 * self.0)
    }
}

/// This thread has other rights for the key; when it is dropped, those from before. Not to be sent to another thread.
#[derive(Debug)]
struct Rights {
    key: Key,
    before: u32,
    _this_thread: PhantomData<*mut ()>,
}

impl Rights {
    fn change(key: Key, closed: bool) -> Self {
        let now = arch::register();
        let wanted = if closed { now | key.bits() } else { now & !key.bits() };
        // Reading is cheap, and writing waits for all that was begun before.
        if wanted != now {
            arch::set_register(wanted);
        }
        Self { key, before: now & key.bits(), _this_thread: PhantomData }
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        // Rights for other keys may have changed meanwhile.
        let now = arch::register();
        let wanted = now & !self.key.bits() | self.before;
        if wanted != now {
            arch::set_register(wanted);
        }
    }
}

/// This thread may access guarded memory.
pub(crate) struct Opened(#[expect(dead_code, reason = "dropped")] Rights);

impl Opened {
    pub(crate) fn new(key: Key) -> Self {
        Self(Rights::change(key, false))
    }
}

/// Guarded memory is closed to this thread as long as this lives, also within [`Guarded::open`](crate::Guarded::open).
/// A runtime holds one during each run.
#[derive(Debug)]
pub struct Closed(#[expect(dead_code, reason = "dropped")] Rights);

impl Closed {
    /// Closes it.
    ///
    /// # Errors
    ///
    /// As of [`check`](crate::check).
    pub fn new() -> Result<Self, Error> {
        Ok(Self(Rights::change(of_process()?, true)))
    }
}
