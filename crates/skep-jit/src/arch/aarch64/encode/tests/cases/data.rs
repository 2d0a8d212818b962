//! Moves, arithmetic, logic, fields and selection.

use super::*;

const SUMS: [(Sum, &str); 2] = [(Sum::Add, "add"), (Sum::Sub, "sub")];

const LOGICS: [(Logic, &str, &str); 3] =
    [(Logic::And, "and", "bic"), (Logic::Orr, "orr", "orn"), (Logic::Eor, "eor", "eon")];

impl Cases {
    pub(super) fn moves(&mut self) {
        for width in WIDTHS {
            for [d, n, ..] in self.registers() {
                let (zd, zn) = (z(width, d), z(width, n));
                for (kind, name) in [(Half::Z, "movz"), (Half::N, "movn"), (Half::K, "movk")] {
                    for lane in 0..(width.bits() / 16) as u8 {
                        for imm in self.numbers(&[0, 1, 0x7fff, 0x8000, 0xffff], 0x1_0000) {
                            let word = mov_half(kind, width, d, imm as u16, lane);
                            self.is(word, format!("{name} {zd}, #{imm}, lsl #{}", lane * 16));
                        }
                    }
                }
                self.is(mov(width, d, n), format!("orr {zd}, {}, {zn}", z(width, Gpr::ZR)));
                self.is(mvn(width, d, n), format!("mvn {zd}, {zn}"));
                self.is(mov_sp(d, n), format!("add {}, {}, #0", base(d), base(n)));
            }
        }
        for [d, ..] in self.registers() {
            for distance in self.distances(21, 1) {
                self.is(adr(d, distance), format!("adr {}, #{distance}", x(d)));
                self.is(adrp(d, distance), format!("adrp {}, #{}", x(d), distance * 4096));
            }
        }
    }

    pub(super) fn sums(&mut self) {
        for (op, name) in SUMS {
            for width in WIDTHS {
                for [d, n, m, _] in self.registers() {
                    let (zd, zn, sd, sn) = (z(width, d), z(width, n), s(width, d), s(width, n));
                    let mut values = self.numbers(&[0, 1, 0xfff, 0x1000, 0xff_f000, 0x80_0000], 0x1000);
                    values.push(self.random.below(0x1000) << 12);
                    for value in values {
                        let imm = Imm12::new(value).expect("twelve bits");
                        self.is(sum_imm(op, width, d, n, imm), format!("{name} {sd}, {sn}, #{value}"));
                        self.is(sum_imm_flags(op, width, d, n, imm), format!("{name}s {zd}, {sn}, #{value}"));
                    }
                    for (shifted, text) in self.shifted(width, m) {
                        if text.contains("ror") {
                            continue;
                        }
                        self.is(sum_reg(op, width, d, n, shifted), format!("{name} {zd}, {zn}, {text}"));
                        let flags = sum_reg_flags(op, width, d, n, shifted);
                        self.is(flags, format!("{name}s {zd}, {zn}, {text}"));
                        if op == Sum::Sub {
                            self.is(neg(width, d, shifted), format!("neg {zd}, {text}"));
                        }
                    }
                    for (extend, how) in [
                        (Extend::Uxtb, "uxtb"),
                        (Extend::Uxth, "uxth"),
                        (Extend::Uxtw, "uxtw"),
                        (Extend::Sxtb, "sxtb"),
                        (Extend::Sxth, "sxth"),
                        (Extend::Sxtw, "sxtw"),
                    ] {
                        for amount in 0..=4 {
                            let word = sum_ext(op, width, d, n, m, extend, amount);
                            let wm = z(Width::W32, m);
                            self.is(word, format!("{name} {sd}, {sn}, {wm}, {how} #{amount}"));
                        }
                    }
                }
            }
        }
    }

    pub(super) fn logic(&mut self) {
        for width in WIDTHS {
            for [d, n, m, _] in self.registers() {
                let (zd, zn, sd) = (z(width, d), z(width, n), s(width, d));
                for (mask, value) in self.masks(width) {
                    for (op, name, _) in LOGICS {
                        self.is(logic_imm(op, width, d, n, mask), format!("{name} {sd}, {zn}, #{value}"));
                    }
                    self.is(test_imm(width, n, mask), format!("tst {zn}, #{value}"));
                }
                for (shifted, text) in self.shifted(width, m) {
                    for (op, name, not) in LOGICS {
                        self.is(logic_reg(op, width, d, n, shifted), format!("{name} {zd}, {zn}, {text}"));
                        self.is(logic_not(op, width, d, n, shifted), format!("{not} {zd}, {zn}, {text}"));
                    }
                    self.is(test_reg(width, n, shifted), format!("tst {zn}, {text}"));
                }
            }
        }
    }

    pub(super) fn fields(&mut self) {
        type Encoder = fn(Width, Gpr, Gpr, u8, u8) -> Word;
        const RAW: [(Encoder, &str); 2] = [(ubfm, "ubfm"), (sbfm, "sbfm")];
        const NAMED: [(Encoder, &str); 3] = [(ubfx, "ubfx"), (ubfiz, "ubfiz"), (sbfx, "sbfx")];
        for width in WIDTHS {
            for [d, n, m, _] in self.registers() {
                let (zd, zn, zm, wn) = (z(width, d), z(width, n), z(width, m), z(Width::W32, n));
                for immr in self.counts(width) {
                    for imms in self.counts(width) {
                        for (encoder, name) in RAW {
                            let word = encoder(width, d, n, immr, imms);
                            self.is(word, format!("{name} {zd}, {zn}, #{immr}, #{imms}"));
                        }
                    }
                    let count = immr;
                    self.is(lsl_imm(width, d, n, count), format!("lsl {zd}, {zn}, #{count}"));
                    self.is(lsr_imm(width, d, n, count), format!("lsr {zd}, {zn}, #{count}"));
                    self.is(asr_imm(width, d, n, count), format!("asr {zd}, {zn}, #{count}"));
                    self.is(ror_imm(width, d, n, count), format!("ror {zd}, {zn}, #{count}"));
                    self.is(extr(width, d, n, m, count), format!("extr {zd}, {zn}, {zm}, #{count}"));
                }
                for (lsb, bits) in self.bit_fields(width) {
                    for (encoder, name) in NAMED {
                        let word = encoder(width, d, n, lsb, bits);
                        self.is(word, format!("{name} {zd}, {zn}, #{lsb}, #{bits}"));
                    }
                }
                self.is(extend_sign(width, Size::B1, d, n), format!("sxtb {zd}, {wn}"));
                self.is(extend_sign(width, Size::B2, d, n), format!("sxth {zd}, {wn}"));
            }
        }
        for [d, n, ..] in self.registers() {
            let [(xd, wd), (xn, wn)] = [d, n].map(|reg| (x(reg), z(Width::W32, reg)));
            self.is(extend_sign(Width::W64, Size::B4, d, n), format!("sxtw {xd}, {wn}"));
            self.is(extend_sign(Width::W32, Size::B4, d, n), format!("orr {wd}, wzr, {wn}"));
            self.is(extend_sign(Width::W64, Size::B8, d, n), format!("orr {xd}, xzr, {xn}"));
            self.is(extend_zero(Size::B1, d, n), format!("uxtb {wd}, {wn}"));
            self.is(extend_zero(Size::B2, d, n), format!("uxth {wd}, {wn}"));
            self.is(extend_zero(Size::B4, d, n), format!("orr {wd}, wzr, {wn}"));
            self.is(extend_zero(Size::B8, d, n), format!("orr {xd}, xzr, {xn}"));
            self.is(rev16(Width::W32, d, n), format!("rev16 {wd}, {wn}"));
            self.is(rev16(Width::W64, d, n), format!("rev16 {xd}, {xn}"));
            self.is(rev(Width::W32, d, n), format!("rev {wd}, {wn}"));
            self.is(rev(Width::W64, d, n), format!("rev {xd}, {xn}"));
        }
    }

    pub(super) fn products(&mut self) {
        for width in WIDTHS {
            for [d, n, m, a] in self.registers() {
                let [zd, zn, zm, za] = [d, n, m, a].map(|reg| z(width, reg));
                for (kind, name) in SHIFTS {
                    self.is(shift_reg(kind, width, d, n, m), format!("{name}v {zd}, {zn}, {zm}"));
                }
                self.is(divide(true, width, d, n, m), format!("sdiv {zd}, {zn}, {zm}"));
                self.is(divide(false, width, d, n, m), format!("udiv {zd}, {zn}, {zm}"));
                self.is(madd(width, d, n, m, a), format!("madd {zd}, {zn}, {zm}, {za}"));
                self.is(msub(width, d, n, m, a), format!("msub {zd}, {zn}, {zm}, {za}"));
                self.is(mul(width, d, n, m), format!("mul {zd}, {zn}, {zm}"));
            }
        }
        for [d, n, m, _] in self.registers() {
            self.is(umulh(d, n, m), format!("umulh {}, {}, {}", x(d), x(n), x(m)));
            let [wn, wm] = [n, m].map(|reg| z(Width::W32, reg));
            self.is(umull(d, n, m), format!("umull {}, {wn}, {wm}", x(d)));
        }
    }

    pub(super) fn selections(&mut self) {
        for width in WIDTHS {
            for [d, n, m, _] in self.registers() {
                let [zd, zn, zm] = [d, n, m].map(|reg| z(width, reg));
                for (cc, name) in CONDITIONS {
                    self.is(csel(width, d, n, m, cc), format!("csel {zd}, {zn}, {zm}, {name}"));
                }
            }
        }
    }
}
