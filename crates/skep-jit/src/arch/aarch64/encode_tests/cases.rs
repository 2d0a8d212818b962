//! Words, and in assembly what each is meant to be.

use super::*;

pub(super) const WIDTHS: [Width; 2] = [Width::W32, Width::W64];

pub(super) const CONDITIONS: [(Cc, &str); 14] = [
    (Cc::Eq, "eq"),
    (Cc::Ne, "ne"),
    (Cc::Hs, "hs"),
    (Cc::Lo, "lo"),
    (Cc::Mi, "mi"),
    (Cc::Pl, "pl"),
    (Cc::Vs, "vs"),
    (Cc::Vc, "vc"),
    (Cc::Hi, "hi"),
    (Cc::Ls, "ls"),
    (Cc::Ge, "ge"),
    (Cc::Lt, "lt"),
    (Cc::Gt, "gt"),
    (Cc::Le, "le"),
];

const SUMS: [(Sum, &str); 2] = [(Sum::Add, "add"), (Sum::Sub, "sub")];

const LOGICS: [(Logic, &str, &str); 3] =
    [(Logic::And, "and", "bic"), (Logic::Orr, "orr", "orn"), (Logic::Eor, "eor", "eon")];

const SHIFTS: [(ShiftKind, &str); 4] =
    [(ShiftKind::Lsl, "lsl"), (ShiftKind::Lsr, "lsr"), (ShiftKind::Asr, "asr"), (ShiftKind::Ror, "ror")];

/// Numbers that are the same in every run (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The cases so far.
struct Cases {
    list: Vec<(Word, String)>,
    random: Random,
}

pub(super) fn cases() -> Vec<(Word, String)> {
    let mut all = Cases { list: Vec::new(), random: Random::new(1) };
    all.moves();
    all.sums();
    all.logic();
    all.fields();
    all.products();
    all.selections();
    all.accesses();
    all.pairs();
    all.atomics();
    all.branches();
    all.list
}

/// All 32 registers, by number.
fn register(number: u64) -> Gpr {
    const ALL: [Gpr; 32] = [
        Gpr::X0,
        Gpr::X1,
        Gpr::X2,
        Gpr::X3,
        Gpr::X4,
        Gpr::X5,
        Gpr::X6,
        Gpr::X7,
        Gpr::X8,
        Gpr::X9,
        Gpr::X10,
        Gpr::X11,
        Gpr::X12,
        Gpr::X13,
        Gpr::X14,
        Gpr::X15,
        Gpr::X16,
        Gpr::X17,
        Gpr::X18,
        Gpr::X19,
        Gpr::X20,
        Gpr::X21,
        Gpr::X22,
        Gpr::X23,
        Gpr::X24,
        Gpr::X25,
        Gpr::X26,
        Gpr::X27,
        Gpr::X28,
        Gpr::X29,
        Gpr::X30,
        Gpr::ZR,
    ];
    ALL[number as usize]
}

/// The register's name where 31 is the zero register.
fn z(width: Width, reg: Gpr) -> String {
    let letter = if width == Width::W64 { 'x' } else { 'w' };
    if reg == Gpr::ZR { format!("{letter}zr") } else { format!("{letter}{}", reg.number()) }
}

/// The register's name where 31 is the stack pointer.
fn s(width: Width, reg: Gpr) -> String {
    match (width, reg) {
        (Width::W32, Gpr::SP) => "wsp".into(),
        (Width::W64, Gpr::SP) => "sp".into(),
        _ => z(width, reg),
    }
}

/// The register that is the base of an access.
fn base(reg: Gpr) -> String {
    s(Width::W64, reg)
}

fn x(reg: Gpr) -> String {
    z(Width::W64, reg)
}

impl Cases {
    fn is(&mut self, word: Word, meant: String) {
        self.list.push((word, meant));
    }

    /// Every register in every place, the others different from it; then registers at random.
    fn registers(&mut self) -> Vec<[Gpr; 4]> {
        let systematic = (0..32).map(|i| [i, i * 7 + 3, i * 11 + 5, i * 13 + 9].map(|n| register(n % 32)));
        let mut all: Vec<_> = systematic.collect();
        // All the same, which aliases like to treat differently; number 31 alone, too.
        all.extend([5, 31].map(|n| [register(n); 4]));
        all.extend(
            (0..4).map(|at| std::array::from_fn(|i| register(if i == at { 31 } else { 7 + i as u64 }))),
        );
        all.extend((0..10).map(|_| std::array::from_fn(|_| register(self.random.below(32)))));
        all
    }

    /// The edges, and three numbers from `0` to `limit - 1` at random.
    fn numbers(&mut self, edges: &[u64], limit: u64) -> Vec<u64> {
        let random = (0..3).map(|_| self.random.below(limit));
        edges.iter().copied().chain(random).collect()
    }

    /// Counts of bits below a width.
    fn counts(&mut self, width: Width) -> Vec<u8> {
        let bits = width.bits().into();
        self.numbers(&[0, 1, bits / 2, bits - 1], bits).into_iter().map(|count| count as u8).collect()
    }

    /// Fields of a register: where they begin, and how long they are.
    fn bit_fields(&mut self, width: Width) -> Vec<(u8, u8)> {
        let bits = width.bits() as u8;
        let mut all =
            vec![(0, 1), (0, bits), (bits - 1, 1), (1, bits - 1), (0, 8), (0, 16), (8, 8), (3, bits / 2)];
        for _ in 0..3 {
            let lsb = self.random.below(bits.into()) as u8;
            all.push((lsb, 1 + self.random.below(u64::from(bits - lsb)) as u8));
        }
        all
    }

    /// Distances of so many bits, in bytes.
    fn distances(&mut self, bits: u32, unit: i64) -> Vec<i64> {
        let limit = 1i64 << (bits - 1);
        let random = (0..4).map(|_| self.random.below(2 * limit as u64) as i64 - limit);
        [0, 1, -1, 2, 50, -50, limit - 1, -limit].into_iter().chain(random).map(|n| n * unit).collect()
    }

    /// A register operand in all its shifts.
    fn shifted(&mut self, width: Width, reg: Gpr, rotates: bool) -> Vec<(Shifted, String)> {
        let name = z(width, reg);
        let mut all = vec![(Shifted::plain(reg), name.clone())];
        for (kind, mnemonic) in &SHIFTS[..if rotates { 4 } else { 3 }] {
            for count in self.counts(width).into_iter().skip(1).filter(|count| *count > 0) {
                all.push((Shifted::by(reg, *kind, count), format!("{name}, {mnemonic} #{count}")));
            }
        }
        all
    }

    /// Masks of all element sizes.
    fn masks(&mut self, width: Width) -> Vec<(Bitmask, u64)> {
        let full = u64::MAX >> (64 - width.bits());
        let values = [1, 0xff, 0xffff, !1, 0x5555_5555_5555_5555, 0x8000_0000, 0xf0f0_f0f0_f0f0_f0f0];
        let more = [0x8001_8001_8001_8001, 0x7fff_fff0, 0x8000_0000_8000_0001_u64 ^ 1, full ^ 0x18];
        let all = values.into_iter().chain(more).map(|value| value & full);
        all.filter_map(|value| Bitmask::new(width, value).map(|mask| (mask, value))).collect()
    }

    fn moves(&mut self) {
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
            for distance in self.distances(19, 4) {
                for width in WIDTHS {
                    self.is(load_literal(width, d, distance), format!("ldr {}, #{distance}", z(width, d)));
                }
            }
        }
    }

    fn sums(&mut self) {
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
                    for (shifted, text) in self.shifted(width, m, false) {
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

    fn logic(&mut self) {
        for width in WIDTHS {
            for [d, n, m, _] in self.registers() {
                let (zd, zn, sd) = (z(width, d), z(width, n), s(width, d));
                for (mask, value) in self.masks(width) {
                    for (op, name, _) in LOGICS {
                        self.is(logic_imm(op, width, d, n, mask), format!("{name} {sd}, {zn}, #{value}"));
                    }
                    self.is(test_imm(width, n, mask), format!("tst {zn}, #{value}"));
                }
                for (shifted, text) in self.shifted(width, m, true) {
                    for (op, name, not) in LOGICS {
                        self.is(logic_reg(op, width, d, n, shifted), format!("{name} {zd}, {zn}, {text}"));
                        self.is(logic_not(op, width, d, n, shifted), format!("{not} {zd}, {zn}, {text}"));
                    }
                    self.is(test_reg(width, n, shifted), format!("tst {zn}, {text}"));
                }
            }
        }
    }

    fn fields(&mut self) {
        type Encoder = fn(Width, Gpr, Gpr, u8, u8) -> Word;
        const RAW: [(Encoder, &str); 3] = [(ubfm, "ubfm"), (sbfm, "sbfm"), (bfm, "bfm")];
        const NAMED: [(Encoder, &str); 6] = [
            (ubfx, "ubfx"),
            (ubfiz, "ubfiz"),
            (sbfx, "sbfx"),
            (sbfiz, "sbfiz"),
            (bfi, "bfi"),
            (bfxil, "bfxil"),
        ];
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
            self.is(rev32(d, n), format!("rev32 {xd}, {xn}"));
        }
    }

    fn products(&mut self) {
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

    fn selections(&mut self) {
        for width in WIDTHS {
            for [d, n, m, _] in self.registers() {
                let [zd, zn, zm] = [d, n, m].map(|reg| z(width, reg));
                for (cc, name) in CONDITIONS {
                    self.is(csel(width, d, n, m, cc), format!("csel {zd}, {zn}, {zm}, {name}"));
                    self.is(csinc(width, d, n, m, cc), format!("csinc {zd}, {zn}, {zm}, {name}"));
                    self.is(csinv(width, d, n, m, cc), format!("csinv {zd}, {zn}, {zm}, {name}"));
                    self.is(csneg(width, d, n, m, cc), format!("csneg {zd}, {zn}, {zm}, {name}"));
                    self.is(cset(width, d, cc), format!("cset {zd}, {name}"));
                }
            }
        }
    }

    fn accesses(&mut self) {
        let loads = [
            (Size::B1, None, "ldrb", Width::W32),
            (Size::B2, None, "ldrh", Width::W32),
            (Size::B4, None, "ldr", Width::W32),
            (Size::B8, None, "ldr", Width::W64),
            (Size::B1, Some(Width::W32), "ldrsb", Width::W32),
            (Size::B2, Some(Width::W32), "ldrsh", Width::W32),
            (Size::B4, Some(Width::W32), "ldr", Width::W32),
            (Size::B1, Some(Width::W64), "ldrsb", Width::W64),
            (Size::B2, Some(Width::W64), "ldrsh", Width::W64),
            (Size::B4, Some(Width::W64), "ldrsw", Width::W64),
            (Size::B8, Some(Width::W64), "ldr", Width::W64),
        ];
        let stores = [
            (Size::B1, "strb", Width::W32),
            (Size::B2, "strh", Width::W32),
            (Size::B4, "str", Width::W32),
            (Size::B8, "str", Width::W64),
        ];
        for [t, n, m, _] in self.registers() {
            for size in Size::ALL {
                for (mem, text, unscaled) in self.places(size, n, m) {
                    // The unscaled forms have names of their own: ldur, sturb.
                    let named = |name: &str| {
                        if unscaled { format!("{}u{}", &name[..2], &name[2..]) } else { name.into() }
                    };
                    for (_, signed, name, width) in loads.into_iter().filter(|load| load.0 == size) {
                        let word = load(size, signed, t, mem);
                        self.is(word, format!("{} {}, {text}", named(name), z(width, t)));
                    }
                    for (_, name, width) in stores.into_iter().filter(|store| store.0 == size) {
                        self.is(store(size, t, mem), format!("{} {}, {text}", named(name), z(width, t)));
                    }
                }
            }
        }
    }

    /// Places in memory, and whether they take the unscaled form.
    fn places(&mut self, size: Size, n: Gpr, m: Gpr) -> Vec<(Mem, String, bool)> {
        let bytes = size.bytes() as i32;
        let base = base(n);
        let scaled = self.numbers(&[0, 1, 2, 4095], 4096).into_iter().map(|units| units as i32 * bytes);
        let unscaled = [-1, -8, -255, -256, -bytes].into_iter();
        let odd = [1, 3, 255].into_iter().filter(|offset| offset % bytes != 0);
        let all =
            scaled.map(|offset| (offset, false)).chain(unscaled.chain(odd).map(|offset| (offset, true)));
        let mut all: Vec<_> =
            all.map(|(offset, u)| (Mem::At(n, offset), format!("[{base}, #{offset}]"), u)).collect();
        let index = x(m);
        let plain = Mem::Index { base: n, index: m, scaled: false };
        all.push((plain, format!("[{base}, {index}]"), false));
        let scaled = Mem::Index { base: n, index: m, scaled: true };
        let shift = bytes.ilog2();
        all.push((scaled, format!("[{base}, {index}, lsl #{shift}]"), false));
        all
    }

    fn pairs(&mut self) {
        for [t, t2, n, _] in self.registers() {
            let sn = base(n);
            let written = n != Gpr::SP && (n == t || n == t2);
            for mode in [Pair::Offset, Pair::Pre, Pair::Post] {
                let place = |offset| match mode {
                    Pair::Offset => format!("[{sn}, #{offset}]"),
                    Pair::Pre => format!("[{sn}, #{offset}]!"),
                    Pair::Post => format!("[{sn}], #{offset}"),
                };
                if mode != Pair::Offset && written {
                    continue;
                }
                for width in WIDTHS {
                    let names = format!("{}, {}", z(width, t), z(width, t2));
                    for offset in self.distances(7, i64::from(width.bits()) / 8) {
                        let word = store_pair(width, t, t2, n, offset as i32, mode);
                        self.is(word, format!("stp {names}, {}", place(offset)));
                        if t != t2 {
                            let word = load_pair(width, t, t2, n, offset as i32, mode);
                            self.is(word, format!("ldp {names}, {}", place(offset)));
                        }
                    }
                }
                if mode != Pair::Offset {
                    for offset in self.distances(9, 1) {
                        let word = load_indexed(t, n, offset as i32, mode);
                        self.is(word, format!("ldr {}, {}", x(t), place(offset)));
                        let word = store_indexed(t, n, offset as i32, mode);
                        self.is(word, format!("str {}, {}", x(t), place(offset)));
                    }
                }
            }
        }
    }

    fn atomics(&mut self) {
        for width in WIDTHS {
            for [a, t, n, _] in self.registers() {
                let (za, zt, sn) = (z(width, a), z(width, t), base(n));
                for (op, name) in [
                    (Rmw::Add, "ldadd"),
                    (Rmw::Clr, "ldclr"),
                    (Rmw::Eor, "ldeor"),
                    (Rmw::Set, "ldset"),
                    (Rmw::Swp, "swp"),
                ] {
                    self.is(rmw(op, width, false, a, t, n), format!("{name} {za}, {zt}, [{sn}]"));
                    self.is(rmw(op, width, true, a, t, n), format!("{name}al {za}, {zt}, [{sn}]"));
                    if op != Rmw::Swp {
                        let word = rmw(op, width, false, a, Gpr::ZR, n);
                        self.is(word, format!("st{} {za}, [{sn}]", &name[2..]));
                    }
                }
                self.is(cas(width, a, t, n), format!("casal {za}, {zt}, [{sn}]"));
                self.is(load_exclusive(width, false, t, n), format!("ldxr {zt}, [{sn}]"));
                self.is(load_exclusive(width, true, t, n), format!("ldaxr {zt}, [{sn}]"));
                if a != t && (a != n || n == Gpr::SP) {
                    let wa = z(Width::W32, a);
                    self.is(store_exclusive(width, false, a, t, n), format!("stxr {wa}, {zt}, [{sn}]"));
                    self.is(store_exclusive(width, true, a, t, n), format!("stlxr {wa}, {zt}, [{sn}]"));
                }
            }
        }
        for [t, n, ..] in self.registers() {
            for (size, suffix) in Size::ALL.into_iter().zip(["b", "h", "", ""]) {
                let zt = z(if size == Size::B8 { Width::W64 } else { Width::W32 }, t);
                self.is(load_acquire(size, t, n), format!("ldar{suffix} {zt}, [{}]", base(n)));
                self.is(store_release(size, t, n), format!("stlr{suffix} {zt}, [{}]", base(n)));
            }
        }
        self.is(dmb_ish(), "dmb ish".into());
    }

    fn branches(&mut self) {
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
            self.is(br(t), format!("br {}", x(t)));
            self.is(blr(t), format!("blr {}", x(t)));
        }
        self.is(ret(), "ret".into());
        for (word, meant) in [
            (nop(), "nop"),
            (bti_c(), "bti c"),
            (bti_j(), "bti j"),
            (bti_jc(), "bti jc"),
            (paciasp(), "paciasp"),
            (autiasp(), "autiasp"),
        ] {
            self.is(word, meant.into());
        }
        for imm in self.numbers(&[0, 1, 0x1234, 0xffff], 0x1_0000) {
            self.is(brk(imm as u16), format!("brk #{imm}"));
        }
    }
}
