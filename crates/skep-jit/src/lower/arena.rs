//! Accesses to the program's arena.

use skep_isa::{Insn, Size, Width};

use super::Lowering;
use crate::error::Error;
use crate::port::{Arch, Arenas};

impl<A: Arch> Lowering<'_, A> {
    /// Compiles an access to the program's arena.
    pub(super) fn arena(&mut self, slot: usize) -> Result<(), Error> {
        let arena = self.parts.arena(slot)?;
        match self.parts.insns[slot] {
            Insn::Load { size, signed, dst, base, offset } => {
                self.emit.arena_load(arena, size, signed, dst, (base, offset));
            }
            Insn::LoadAcquire { size, dst, base, offset } => {
                self.emit.arena_load_acquire(arena, size, dst, (base, offset));
            }
            Insn::Store { size, base, offset, src } => {
                self.emit.arena_store(arena, size, (base, offset), src);
            }
            Insn::StoreRelease { size, base, offset, src } => {
                self.emit.arena_store_release(arena, size, (base, offset), src);
            }
            Insn::Atomic { op, size, base, offset, src } => {
                let width = match size {
                    Size::B4 => Width::W32,
                    Size::B8 => Width::W64,
                    _ => return Err(Error::Unsupported { slot, what: "an atomic operation of this size" }),
                };
                let live_out = self.live_out(slot);
                self.emit.arena_atomic(arena, op, width, (base, offset), src, live_out);
            }
            _ => return Err(Error::Malformed { slot, what: "an access to an arena that is no access" }),
        }
        Ok(())
    }
}
