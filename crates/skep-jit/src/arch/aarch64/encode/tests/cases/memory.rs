//! Loads, stores and atomic accesses.

use super::*;

impl Cases {
    pub(super) fn accesses(&mut self) {
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
                    // The unscaled forms have other names: ldur, sturb.
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

    /// Memory operands, and whether they use the unscaled form.
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
        let shift = bytes.ilog2();
        let (whole, half) = (x(m), z(Width::W32, m));
        for (part, plain, scaled) in [
            (Part::Whole, whole.clone(), format!("{whole}, lsl")),
            (Part::Unsigned, format!("{half}, uxtw"), format!("{half}, uxtw")),
            (Part::Signed, format!("{half}, sxtw"), format!("{half}, sxtw")),
        ] {
            let index = |scaled| Mem::Index { base: n, index: m, part, scaled };
            all.push((index(false), format!("[{base}, {plain}]"), false));
            all.push((index(true), format!("[{base}, {scaled} #{shift}]"), false));
        }
        all
    }

    pub(super) fn pairs(&mut self) {
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

    pub(super) fn atomics(&mut self) {
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
}
