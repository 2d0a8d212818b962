//! Words with their intended assembly text.

mod control;
mod data;
mod memory;

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

const SHIFTS: [(ShiftKind, &str); 4] =
    [(ShiftKind::Lsl, "lsl"), (ShiftKind::Lsr, "lsr"), (ShiftKind::Asr, "asr"), (ShiftKind::Ror, "ror")];

/// A generator with the same numbers in every run (SplitMix64).
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
    Gpr::numbered(number as u8)
}

/// The register's name in operands where 31 is the zero register.
fn z(width: Width, reg: Gpr) -> String {
    let letter = if width == Width::W64 { 'x' } else { 'w' };
    if reg == Gpr::ZR { format!("{letter}zr") } else { format!("{letter}{}", reg.number()) }
}

/// The register's name in operands where 31 is the stack pointer.
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

    /// Every register in every operand with different other operands; then random registers.
    fn registers(&mut self) -> Vec<[Gpr; 4]> {
        let systematic = (0..32).map(|i| [i, i * 7 + 3, i * 11 + 5, i * 13 + 9].map(|n| register(n % 32)));
        let mut all: Vec<_> = systematic.collect();
        // All operands equal, which aliases may treat specially, and number 31 alone.
        all.extend([5, 31].map(|n| [register(n); 4]));
        all.extend(
            (0..4).map(|at| std::array::from_fn(|i| register(if i == at { 31 } else { 7 + i as u64 }))),
        );
        all.extend((0..10).map(|_| std::array::from_fn(|_| register(self.random.below(32)))));
        all
    }

    /// The edge values, and three random numbers from `0` to `limit - 1`.
    fn numbers(&mut self, edges: &[u64], limit: u64) -> Vec<u64> {
        let random = (0..3).map(|_| self.random.below(limit));
        edges.iter().copied().chain(random).collect()
    }

    /// Counts of bits below a width.
    fn counts(&mut self, width: Width) -> Vec<u8> {
        let bits = width.bits().into();
        self.numbers(&[0, 1, bits / 2, bits - 1], bits).into_iter().map(|count| count as u8).collect()
    }

    /// Bit fields of a register: their first bit and width.
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

    /// Distances of `bits` bits, in bytes.
    fn distances(&mut self, bits: u32, unit: i64) -> Vec<i64> {
        let limit = 1i64 << (bits - 1);
        let random = (0..4).map(|_| self.random.below(2 * limit as u64) as i64 - limit);
        [0, 1, -1, 2, 50, -50, limit - 1, -limit].into_iter().chain(random).map(|n| n * unit).collect()
    }

    /// A register operand in all its shifts.
    fn shifted(&mut self, width: Width, reg: Gpr) -> Vec<(Shifted, String)> {
        let name = z(width, reg);
        let mut all = vec![(Shifted::plain(reg), name.clone())];
        for (kind, mnemonic) in SHIFTS {
            for count in self.counts(width).into_iter().skip(1).filter(|count| *count > 0) {
                all.push((Shifted::by(reg, kind, count), format!("{name}, {mnemonic} #{count}")));
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
}
