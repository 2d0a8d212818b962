//! Types: `BPF_BTF_LOAD`.

use crate::attr::{Attr, BtfLoad};
use crate::caller::Caller;
use crate::engine::Engine;
use crate::errno::Errno;
use crate::log::Log;
use crate::maps::no_token;
use crate::object::{Handle, Object};
use crate::system::System;
use alloc::sync::Arc;
use alloc::vec;

/// The most bytes of types.
const MOST: u32 = 16 << 20;
/// `BPF_F_TOKEN_FD`.
const F_TOKEN_FD: u32 = 1 << 16;

/// Types that a caller loaded, or the kernel's.
pub struct BtfObject<E: Engine> {
    id: u32,
    types: E::Types,
    is_kernel: bool,
}

impl<E: Engine> BtfObject<E> {
    /// Its identifier.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The kernel's types.
    pub(crate) fn of_kernel(id: u32, types: E::Types) -> Self {
        Self { id, types, is_kernel: true }
    }

    /// Whether these are the kernel's.
    pub fn is_kernel(&self) -> bool {
        self.is_kernel
    }

    /// Its name: those of programs have none.
    pub fn name(&self) -> &'static str {
        if self.is_kernel { "vmlinux" } else { "" }
    }

    /// The engine's form.
    pub fn types(&self) -> &E::Types {
        &self.types
    }
}

impl<E: Engine> System<E> {
    pub(crate) fn btf_load(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        const TRUE_SIZE: usize = core::mem::offset_of!(BtfLoad, btf_log_true_size);
        let load: BtfLoad = attr.get()?;
        if load.btf_flags & !F_TOKEN_FD != 0 {
            return Err(Errno::EINVAL);
        }
        if load.btf_flags & F_TOKEN_FD != 0 {
            return Err(no_token(caller, load.btf_token_fd));
        }
        if load.btf_size > MOST {
            return Err(Errno::E2BIG);
        }
        let mut log = Log::new(load.btf_log_level, load.btf_log_buf, load.btf_log_size)?;
        let mut bytes = vec![0; load.btf_size as usize];
        caller.read(load.btf, &mut bytes)?;
        let types = self.engine().load_types(&bytes, &mut |line| log.line(line));
        let written = log.finish(caller);
        if attr.has(TRUE_SIZE, 4) {
            attr.put(caller, TRUE_SIZE, &log.true_size().to_ne_bytes())?;
        }
        let (types, ()) = (types?, written?);
        let id = self.with(|registry| registry.types.reserve());
        let object = Arc::new(BtfObject { id, types, is_kernel: false });
        self.with(|registry| registry.types.insert(id, &object));
        let handle = Handle::new(self.shared(), Object::Btf(object));
        caller.install(handle).map(i64::from)
    }
}
