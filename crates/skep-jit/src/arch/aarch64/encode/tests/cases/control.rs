//! Branches, hints and traps.

use super::*;

impl Cases {
    pub(super) fn branches(&mut self) {
        for distance in self.distances(26, 4) {
            self.is(b(distance), format!("b #{distance}"));
            self.is(bl(distance), format!("bl #{distance}"));
        }
        for distance in self.distances(19, 4) {
            for (cc, name) in CONDITIONS {
                self.is(b_cond(cc, distance), format!("b.{name} #{distance}"));
            }
        }
        for [t, ..] in self.registers() {
            for (nonzero, n) in [(false, ""), (true, "n")] {
                for width in WIDTHS {
                    for distance in self.distances(19, 4) {
                        let word = cbz(nonzero, width, t, distance);
                        self.is(word, format!("cb{n}z {}, #{distance}", z(width, t)));
                    }
                }
                for bit in self.counts(Width::W64) {
                    let zt = z(if bit < 32 { Width::W32 } else { Width::W64 }, t);
                    for distance in self.distances(14, 4) {
                        self.is(tbz(nonzero, t, bit, distance), format!("tb{n}z {zt}, #{bit}, #{distance}"));
                    }
                }
            }
            self.is(blr(t), format!("blr {}", x(t)));
            self.is(br(t), format!("br {}", x(t)));
        }
        self.is(ret(), "ret".into());
        for (word, meant) in
            [(nop(), "nop"), (bti_c(), "bti c"), (paciasp(), "paciasp"), (autiasp(), "autiasp")]
        {
            self.is(word, meant.into());
        }
        for imm in self.numbers(&[0, 1, 0x1234, 0xffff], 0x1_0000) {
            self.is(brk(imm as u16), format!("brk #{imm}"));
        }
    }
}
