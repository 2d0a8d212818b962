//! Loads that may fault: they yield 0 then, in every form of code.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use skep_isa::{AluOp, Insn, Operand, Reg, Size, Width};
use skep_text::{Arena, Config};
use skep_verifier::Fact;

use super::{NEAR, Program};
use crate::{Error, arch};

const PAGE: usize = 4096;

/// A page of bytes between two unreadable ones: one without access rights, and one that is not mapped.
pub(super) struct Pages(*mut u8);

// SAFETY: nothing writes to it after its creation.
unsafe impl Sync for Pages {}

impl Pages {
    pub(super) fn new() -> Self {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, of three pages of the largest page size.
        let start = unsafe { libc::mmap(ptr::null_mut(), 3 * Self::STEP, rights, kind, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let start = start.cast::<u8>();
        // SAFETY: the three parts of the memory just mapped.
        unsafe {
            for at in 0..Self::STEP {
                start.add(Self::STEP + at).write(Self::byte(at));
            }
            assert_eq!(libc::mprotect(start.cast(), Self::STEP, libc::PROT_NONE), 0);
            assert_eq!(libc::munmap(start.add(2 * Self::STEP).cast(), Self::STEP), 0);
        }
        Self(start)
    }

    const STEP: usize = 16 * PAGE;

    fn byte(at: usize) -> u8 {
        (at * 7 + (at >> 8) * 13 + 0x80) as u8
    }

    /// The first readable byte.
    fn first(&self) -> u64 {
        self.0 as u64 + Self::STEP as u64
    }

    /// The first byte after the readable ones.
    fn behind(&self) -> u64 {
        self.0 as u64 + 2 * Self::STEP as u64
    }

    /// Addresses at which a load of that size faults.
    fn bad(&self, size: Size) -> Vec<u64> {
        let bytes = u64::from(size.bytes());
        let mut bad = vec![
            0,
            1,
            self.first() - bytes,  // without rights
            self.behind(),         // not mapped
            0x0000_8000_0000_0000, // not canonical on x86-64
            0x7fff_ffff_ffff_fff8,
            0x00ad_beef_dead_beef,
            0xffff_8000_0000_0000, // the kernel's
            0u64.wrapping_sub(bytes),
        ];
        if bytes > 1 {
            bad.push(self.behind() - 1); // one byte of it is readable
            bad.push(self.first() - 1);
            bad.push(u64::MAX); // wraps around to 0
        }
        bad
    }

    /// The expected result of a load.
    fn value(&self, address: u64, size: Size, signed: bool) -> u64 {
        let mut number = [0; 8];
        for (at, byte) in number.iter_mut().enumerate().take(size.bytes() as usize) {
            *byte = Self::byte((address - self.first()) as usize + at);
        }
        let bits = 64 - size.bits();
        let number = u64::from_le_bytes(number);
        if signed { ((number << bits) as i64 >> bits) as u64 } else { number }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the remaining memory that `new` mapped.
        unsafe { libc::munmap(self.0.cast(), 2 * Self::STEP) };
    }
}

fn mov(dst: Reg, src: Reg) -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Reg(src) }
}

fn movable() -> impl Iterator<Item = Reg> {
    Reg::ALL.into_iter().filter(|&reg| reg != Reg::R10)
}

fn sizes() -> impl Iterator<Item = (Size, bool)> {
    Size::ALL
        .into_iter()
        .flat_map(|size| [(size, false), (size, true)])
        .filter(|&(size, signed)| !(signed && size == Size::B8))
}

#[test]
fn probes_of_every_size_and_register_yield_the_value_or_0() {
    let pages = Pages::new();
    for base in movable() {
        for dst in movable() {
            for (size, signed) in sizes() {
                for offset in [0, -8, 2000, i16::MIN] {
                    let load = Insn::Load { size, signed, dst, base, offset };
                    let insns = vec![mov(base, Reg::R1), load, mov(Reg::R0, dst), Insn::Exit];
                    let program = Program::of(insns).probing().compile();
                    let run = |address: u64| {
                        let r1 = address.wrapping_sub(i64::from(offset) as u64);
                        // SAFETY: the program's only access is a probe, which may go to any address.
                        unsafe { program.entry().call(r1, 0, ptr::null_mut()) }
                    };
                    for at in [pages.first(), pages.first() + 1003, pages.behind() - u64::from(size.bytes())]
                    {
                        assert_eq!(run(at), pages.value(at, size, signed), "{load} of {at:#x}");
                    }
                    // Signals are slow: most registers try one of the addresses, some try all.
                    let bad = pages.bad(size);
                    let one = (base.index() * 11 + dst.index()) % bad.len();
                    let all = base == Reg::R1 && matches!(dst, Reg::R0 | Reg::R1 | Reg::R9) && offset == 0;
                    for (at, &address) in bad.iter().enumerate() {
                        if all || at == one {
                            assert_eq!(run(address), 0, "{load} of {address:#x}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_probe_that_faults_changes_its_register_and_no_other() {
    let text = "
        r2 = 2
        r3 = 3
        r4 = 4
        r5 = 5
        r6 = 6
        r7 = 7
        r8 = 8
        r9 = 9
        r0 = 10
        *(u64 *)(r10 - 8) = r0
        r4 = *(u32 *)(r1 + 0)
        if r1 != 0 goto bad
        if r4 != 0 goto bad
        if r0 != 10 goto bad
        r4 = *(u64 *)(r10 - 8)
        r0 = r2
        r0 <<= 4
        r0 |= r3
        r0 <<= 4
        r0 |= r4
        r0 <<= 4
        r0 |= r5
        r0 <<= 4
        r0 |= r6
        r0 <<= 4
        r0 |= r7
        r0 <<= 4
        r0 |= r8
        r0 <<= 4
        r0 |= r9
        exit
   bad: r0 = 0
        exit";
    assert_eq!(Program::new(text).probing().run(0, 0), 0x23a5_6789);
}

#[test]
fn instructions_are_not_fused_across_probes() {
    let pages = Pages::new();
    let (end, first) = (pages.behind(), pages.first());
    let last = pages.value(end - 8, Size::B8, false);
    let cases: [(&str, u64, u64, u64); 9] = [
        // A memory operand whose register is not read otherwise.
        ("r0 = 5\nr3 = *(u64 *)(r1 + 0)\nr0 += r3\nexit", end, 0, 5),
        ("r0 = 5\nr3 = *(u64 *)(r1 - 8)\nr0 += r3\nexit", end, 0, last.wrapping_add(5)),
        ("r0 = 5\nr3 = *(u32 *)(r1 + 0)\nw0 *= w3\nexit", end, 0, 0),
        // Two neighbours, one of them unreadable.
        ("r0 = *(u64 *)(r1 - 8)\nr3 = *(u64 *)(r1 + 0)\nr0 += r3\nexit", end, 0, last),
        ("r3 = *(u64 *)(r1 + 0)\nr0 = *(u64 *)(r1 - 8)\nr0 -= r3\nexit", end, 0, last),
        ("r3 = *(u32 *)(r1 - 4)\nr0 = *(u32 *)(r1 + 0)\nr0 += r3\nexit", first, 0, {
            u64::from(u32::from_le_bytes([0, 1, 2, 3].map(Pages::byte)))
        }),
        // An address that the load computes by itself.
        ("r4 = r1\nr4 += r2\nr0 = *(u8 *)(r4 + 2)\nexit", end, 100, 0),
        ("r2 <<= 3\nr1 += r2\nr0 = *(u64 *)(r1 + 0)\nexit", end - 16, 1, last),
        ("r3 = 7\nr2 <<= 3\nr3 = *(u64 *)(r1 + 0)\nr3 += r2\nr0 = *(u16 *)(r3 + 8)\nexit", end, 9, 0),
    ];
    for (text, r1, r2, expected) in cases {
        assert_eq!(Program::new(text).probing().run(r1, r2), expected, "{text}");
    }
}

#[test]
fn a_probe_may_follow_or_precede_branches_of_every_length() {
    let pages = Pages::new();
    for padding in [0, 10, 60, 400] {
        let mut text = String::from("r0 = 0\nr3 = 3\nnext: r4 = *(u32 *)(r1 + 0)\nif r4 == 0 goto out\n");
        text.extend(std::iter::repeat_n("r0 += 1\nr0 ^= r2\n", padding));
        text += "r1 += 65536\nr3 += -1\nif r3 != 0 goto next\nout: r4 = *(s8 *)(r1 + 0)\nr0 = r3\nexit";
        let program = Program::new(&text).probing();
        // The first iteration hits the page, the second the bytes after it.
        assert_eq!(program.run(pages.first(), 0), 2, "{padding}");
        assert_eq!(program.run(pages.behind(), 0), 3, "{padding}");
    }
}

#[test]
fn each_faulting_thread_gets_its_own_zero() {
    let text = "r0 = *(u64 *)(r1 + 0)\nr3 = *(u32 *)(r2 + 0)\nr0 += r3\nexit";
    let (pages, program, stop) =
        (Pages::new(), Program::new(text).probing().compile(), AtomicBool::new(false));
    let (good, bad) = (pages.first(), pages.behind());
    let value = pages.value(good, Size::B8, false);
    let part = pages.value(good, Size::B4, false);
    std::thread::scope(|scope| {
        // Other texts with probes are loaded and dropped meanwhile.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let other = Program::new(text).probing().compile();
                // SAFETY: the program's accesses are probes, which may go to any address.
                assert_eq!(unsafe { other.entry().call(0, 0, ptr::null_mut()) }, 0);
            }
        });
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        // SAFETY: as above.
                        let run = |r1, r2| unsafe { program.entry().call(r1, r2, ptr::null_mut()) };
                        assert_eq!(run(bad, good), part);
                        assert_eq!(run(good, bad), value);
                        assert_eq!(run(bad, bad), 0);
                        assert_eq!(run(good, good), value.wrapping_add(part));
                    }
                })
            })
            .collect();
        let done: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(done.iter().all(Result::is_ok), "{done:?}");
    });
}

#[test]
fn without_the_fault_handler_programs_with_probes_are_refused() {
    let arena = Arena::new(Config::new().fault_handler(false)).expect("an arena");
    let text = "r0 = 0\nr3 = r1\nr0 = *(u64 *)(r3 + 8)\nexit";
    let error = Program::new(text).probing().compile_for(arch::detect(), &arena).expect_err("it has a probe");
    assert!(
        matches!(error, Error::Probe { slot: 2, source: skep_text::Error::ProbesForbidden }),
        "{error:?}"
    );
    let text = error.to_string();
    for part in ["slot 2", "may be gone", "Config::fault_handler(false)", "in place of such loads"] {
        assert!(text.contains(part), "{text}");
    }
    Program::new("r0 = *(u64 *)(r10 - 8)\nexit")
        .compile_for(arch::detect(), &arena)
        .expect("no probe, no handler");
}

#[test]
fn facts_that_no_code_can_implement_are_refused() {
    let refused = |text: &str, slot: usize, fact: Fact| {
        let mut program = Program::new(text);
        program.facts[slot] = fact;
        program.compile_for(arch::detect(), &NEAR).expect_err("it has no code").to_string()
    };
    let probe = Fact { reached: true, probe: true, ..Fact::default() };
    let text = "slot 0: an access that may fault and is no plain load cannot be compiled";
    for insn in
        ["*(u64 *)(r10 - 8) = 1", "lock *(u64 *)(r10 - 8) += r1", "r0 = load_acquire((u64 *)(r10 - 8))"]
    {
        assert_eq!(refused(&format!("{insn}\nr0 = 0\nexit"), 0, probe), text, "{insn}");
    }
    let skep_abi::Context::Struct(layout) = skep_abi::XDP.context else { panic!("a structure") };
    let field = &layout.fields[0];
    let foreign = Fact { reached: true, foreign: Some(field), ..Fact::default() };
    assert_eq!(
        refused("r0 = *(u32 *)(r1 + 0)\nexit", 0, foreign),
        "slot 0: an access to a field that the context lacks cannot be compiled"
    );
    let arena = Fact { reached: true, arena: true, ..Fact::default() };
    let text = "slot 0: the instruction is about an arena, and no arena is linked";
    for insn in ["r0 = *(u32 *)(r1 + 0)", "*(u64 *)(r1 + 0) = 1", "lock *(u64 *)(r1 + 0) += r1"] {
        assert_eq!(refused(&format!("{insn}\nr0 = 0\nexit"), 0, arena), text, "{insn}");
    }
    let reached = Fact { reached: true, ..Fact::default() };
    assert_eq!(refused("r0 = addr_space_cast(r1, 0x0, 0x1)\nexit", 0, reached), text);
}
