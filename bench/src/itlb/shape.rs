//! The published experiment as a list of page visits: what runs on one of its processors, in turns.
//!
//! ```text
//!    slice of a loop of system calls                    slice of the compiler
//!    user page, kernel entry, hook,                     pages of its code, by the distances in a
//!      20 x (program, kernel's helper),  x 5   ...        stack of those used last
//!    kernel exit                                            (measured: see DISTANCES)
//! ```
//!
//! Published: 20 instances of 8 programs, 5 of each 8 triggered in an endless loop of system calls, a compiler on
//! all 32 processors. Each assumption is a constant here with its reason; none was chosen to meet the published
//! result, and the report varies those that matter.

use super::compiler::Compiler;
use super::tlb::HUGE;
use serde::Serialize;

/// Programs loaded: 20 instances of 8.
pub(super) const LOADED: u32 = 160;
/// Programs that run: 5 of each 8.
pub(super) const HOT: u32 = INSTANCES * HOOKS;
/// Instances, and hooks (the programs of an instance that run): a system call with a hook runs one program of each
/// instance.
const INSTANCES: u32 = 20;
const HOOKS: u32 = 5;
const PROGRAMS: u32 = LOADED / INSTANCES;

/// Sizes of an instance's programs, from small probes to small parsers. Only packs mind.
const SIZES: [u32; PROGRAMS as usize] = [150, 200, 250, 300, 350, 400, 500, 600];
/// Chunks of packs in the published series.
const CHUNK: u32 = 64;

/// 20 loops and 32 jobs of the compiler share 32 processors, each with the same right: of 52 parts of time 20 are the
/// loops'.
const LOOP_SHARE: f64 = 20.0 / 52.0;
/// Instructions in a slice of the compiler: 3 ms, the base slice of Linux's scheduler on more than 8 processors, at
/// two thousand million instructions a second.
const SLICE: u64 = 6_000_000;
/// Instructions of a system call without its programs: `getppid` takes 318 (counted: Linux 6.18, x86-64, the caller's
/// 17 included), and the way through a hook is taken to be as long again.
const CALL: u64 = 640;
/// Instructions of a program's run: some ninety of its own, and the way from the hook to it and back.
const RUN: u64 = 150;

/// Pages of the loop: its own and the C library's.
const LOOP_PAGES: u32 = 2;
/// Kernel text on the way of a system call, in 2 MiB pages: entry, the calls, tracing, the runtime's helpers, the
/// scheduler. Kernels map their text by huge pages.
const KERNEL_HUGE: u32 = 6;
/// The same where kernel text is mapped by 4 KiB pages: entry and exit, each call's own code, the hook and helpers.
const KERNEL_ENTRY: u32 = 4;
const KERNEL_CALL: u32 = 8;
const KERNEL_HOOK: u32 = 4;

/// Other assumptions, as factors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    /// Stretches the compiler's footprint and the distances within it.
    pub(super) compiler: f64,
    /// Multiplies the loops' share of time, against the compiler's.
    pub(super) loops: f64,
    /// Multiplies the instructions of a system call.
    pub(super) call: u64,
    /// Whether kernel text is mapped by huge pages.
    pub(super) kernel_huge: bool,
}

impl Variant {
    pub(super) const BASE: Self = Self { compiler: 1.0, loops: 1.0, call: 1, kernel_huge: true };
}

/// Where the programs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Layout {
    Page,
    Pack4k,
    Pack2m,
}

impl Layout {
    pub(super) const ALL: [Self; 3] = [Self::Page, Self::Pack4k, Self::Pack2m];
}

/// A visit: a page, or the page of a program, which depends on the layout.
#[derive(Clone, Copy, Debug)]
enum Visit {
    Page(u64),
    Program(u32),
}

/// Visits of one slice of each kind in turns, the same for every layout.
pub(super) struct Trace {
    slices: Vec<Vec<Visit>>,
    /// Instructions in all slices but the first two.
    pub(super) instructions: u64,
}

impl Trace {
    /// Makes `pairs` pairs of slices, and one before them that only warms up.
    pub(super) fn new(variant: Variant, pairs: usize) -> Self {
        let iteration = iteration(variant);
        let per_iteration = u64::from(HOOKS) * (CALL * variant.call + u64::from(INSTANCES) * RUN);
        let share = LOOP_SHARE * variant.loops;
        let wanted = (SLICE as f64 * share / (1.0 - LOOP_SHARE)) as u64;
        let iterations = (wanted / per_iteration).max(1);
        let mut compiler = Compiler::new(variant.compiler);
        let mut slices = Vec::new();
        for _ in 0..=pairs {
            slices.push(
                iteration.iter().copied().cycle().take(iteration.len() * iterations as usize).collect(),
            );
            slices.push(compiler.visits(SLICE).map(Visit::Page).collect());
        }
        Self { slices, instructions: pairs as u64 * (SLICE + iterations * per_iteration) }
    }

    /// Tells `fetch` every page in order, and `warm` when what comes is to count.
    pub(super) fn pages<T>(
        &self,
        layout: Layout,
        of: &mut T,
        warm: impl Fn(&mut T),
        fetch: impl Fn(&mut T, u64),
    ) {
        let places = places(layout);
        for (number, slice) in self.slices.iter().enumerate() {
            if number == 2 {
                warm(of);
            }
            for visit in slice {
                match *visit {
                    Visit::Page(page) => fetch(of, page),
                    Visit::Program(program) => {
                        let (first, last) = places[program as usize];
                        fetch(of, first);
                        if last != first {
                            fetch(of, last);
                        }
                    }
                }
            }
        }
    }
}

/// The first and the last page of each program. Programs are loaded instance by instance.
fn places(layout: Layout) -> Vec<(u64, u64)> {
    // Far from everything else, as an area of the kernel's addresses is.
    const AREA: u64 = 1 << 30;
    let mut at = 0;
    (0..LOADED)
        .map(|program| {
            let start = at;
            let size = SIZES[(program % PROGRAMS) as usize];
            at += size.next_multiple_of(CHUNK);
            match layout {
                Layout::Page => (AREA + u64::from(program), AREA + u64::from(program)),
                Layout::Pack4k => {
                    (AREA + u64::from(start / 4096), AREA + u64::from((start + size - 1) / 4096))
                }
                Layout::Pack2m => (AREA | HUGE, AREA | HUGE),
            }
        })
        .collect()
}

/// One round of the loop: a system call for each hook.
fn iteration(variant: Variant) -> Vec<Visit> {
    const USER: u64 = 1 << 20;
    const KERNEL: u64 = 1 << 40;
    let mut visits = Vec::new();
    let huge = |part: u32| Visit::Page(HUGE | KERNEL | u64::from(part % KERNEL_HUGE));
    let small = |area: u32, page: u32| Visit::Page(KERNEL + u64::from(area) * 4096 + u64::from(page));
    for hook in 0..HOOKS {
        visits.extend((0..LOOP_PAGES).map(|page| Visit::Page(USER + u64::from(page))));
        if variant.kernel_huge {
            visits.extend([huge(0), huge(1 + hook % 2), huge(3)]);
        } else {
            visits.extend((0..KERNEL_ENTRY).map(|page| small(0, page)));
            visits.extend((0..KERNEL_CALL).map(|page| small(1 + hook, page)));
        }
        for instance in 0..INSTANCES {
            let program = instance * PROGRAMS + hook;
            let (hooked, helper) =
                if variant.kernel_huge { (huge(3), huge(4)) } else { (small(9, 0), small(9, 1 + hook % 3)) };
            visits.extend([hooked, Visit::Program(program), helper, Visit::Program(program)]);
        }
        if variant.kernel_huge {
            visits.extend([huge(3), huge(5), huge(0)]);
        } else {
            visits.extend((0..KERNEL_HOOK).map(|page| small(9, page)));
            visits.extend((0..KERNEL_ENTRY).map(|page| small(0, page)));
        }
    }
    visits
}
