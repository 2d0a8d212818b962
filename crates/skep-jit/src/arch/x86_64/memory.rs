//! Loads and stores.
//!
//! Nothing is checked here: the verifier has proved every access except probe loads, which are declared to the fault
//! handler. Ordinary loads are acquiring and ordinary stores releasing on x86-64 (SDM volume 3, 10.2.2: loads are not
//! reordered with older loads, stores are not reordered with older loads or stores).

use skep_isa::{AtomicOp, Operand, Reg, RegSet, Size, Width};

use super::encode::{self, Mem, Scale};
use super::regs::SCRATCH;
use super::{Emitter, gpr};
use crate::port::Memory;
use crate::port::operand::{Address, Index};

impl Memory for Emitter<'_> {
    fn load(&mut self, size: Size, signed: bool, dst: Reg, address: Address) {
        self.put_plain(Some(gpr(dst)), encode::load(size, signed, gpr(dst), place(address)));
    }

    fn probe(&mut self, slot: usize, size: Size, signed: bool, dst: Reg, address: Address) {
        let bytes = encode::load(size, signed, gpr(dst), place(address));
        self.put_plain(Some(gpr(dst)), bytes);
        self.code.probe_last(slot, bytes.len(), gpr(dst).number());
    }

    fn store(&mut self, size: Size, address: Address, src: Operand) {
        let src = match self.hidden_store(SCRATCH, size, src) {
            Ok(src) => src,
            Err(hidden) => return self.put(encode::store_r(size, place(address), hidden)),
        };
        let bytes = match src {
            Operand::Reg(src) => encode::store_r(size, place(address), gpr(src)),
            Operand::Imm(imm) => encode::store_i(size, place(address), imm),
        };
        self.put_plain(None, bytes);
    }

    fn moves_pairs(&self, _: Size, _: Address) -> bool {
        false
    }

    fn load_pair(&mut self, size: Size, dst: (Reg, Reg), address: Address) {
        unreachable!("pairs are two loads: {size:?} {dst:?} {address:?}");
    }

    fn store_pair(&mut self, size: Size, address: Address, src: (Operand, Operand)) {
        unreachable!("pairs are two stores: {size:?} {address:?} {src:?}");
    }

    fn load_acquire(&mut self, size: Size, dst: Reg, address: Address) {
        self.load(size, false, dst, address);
    }

    fn store_release(&mut self, size: Size, address: Address, src: Reg) {
        self.store(size, address, Operand::Reg(src));
    }

    fn atomic(&mut self, op: AtomicOp, width: Width, place: (Reg, i16), src: Reg, live: RegSet) {
        let (base, offset) = place;
        self.read_modify_write(op, width, Mem::at(gpr(base), offset.into()), src, live);
    }
}

/// The memory operand of an address.
pub(super) fn place(address: Address) -> Mem {
    let base = gpr(address.base);
    match address.index {
        None => Mem::at(base, address.disp),
        // As a base, `rbp` and `r13` need a displacement.
        Some(Index { reg: index, shift: 0, .. }) if base.low() == 5 && address.disp == 0 => {
            Mem::indexed(gpr(index), base, Scale::X1, 0)
        }
        Some(Index { reg: index, shift, .. }) => {
            let scale = [Scale::X1, Scale::X2, Scale::X4, Scale::X8][usize::from(shift & 3)];
            Mem::indexed(base, gpr(index), scale, address.disp)
        }
    }
}
