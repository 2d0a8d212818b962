//! A model of instruction TLBs on the published experiment, for machines that cannot count.
//!
//! The experiment: 160 programs are loaded and 100 of them triggered in an endless loop of system calls, while a
//! compiler runs. Published: packed, the instruction TLB misses 63 % less a second and walks 43 % less for each
//! instruction. The model runs the same list of page visits (`shape`) through a TLB (`tlb`) of the geometry that
//! the manufacturer publishes, once for each layout, and counts.
//!
//! What it does not know: data that competes for a second level which is shared, prefetches and speculation, merged
//! entries, flushes, programs that the compiler's own system calls trigger (that would favour packs). The assumptions
//! are constants in `shape`, each with its reason; those that matter are varied in the report.

mod compiler;
mod shape;
mod tlb;

use serde::Serialize;
use shape::{Layout, Trace, Variant};
use tlb::{Geometry, Tlb};

/// What the model says.
#[derive(Debug, Serialize)]
pub(crate) struct Model {
    /// Programs loaded.
    pub(crate) loaded: u32,
    /// Programs that run.
    pub(crate) hot: u32,
    /// What was measured and published with the series that packed programs in the Linux kernel for Arm.
    pub(crate) published: Published,
    /// The processors.
    pub(crate) processors: Vec<Processor>,
    /// The same under other assumptions.
    pub(crate) sensitivity: Vec<Sensitivity>,
}

/// The published change from a page each to packs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Published {
    /// `iTLB-load-misses` a second, per cent.
    pub(crate) misses_change_percent: f64,
    /// `ITLB_WALK` for each instruction, per cent.
    pub(crate) walks_change_percent: f64,
}

/// One processor.
#[derive(Debug, Serialize)]
pub(crate) struct Processor {
    /// Its name.
    pub(crate) name: &'static str,
    /// Entries of the first level, fully associative.
    pub(crate) l1_entries: usize,
    /// Entries of the second level.
    pub(crate) l2_entries: usize,
    /// Ways of the second level.
    pub(crate) l2_ways: usize,
    /// Where that is written.
    pub(crate) source: &'static str,
    /// One entry for each layout: a page each, 4 KiB packs, huge packs.
    pub(crate) layouts: Vec<Counts>,
}

/// What one layout costs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Counts {
    /// `page`, `pack4k` or `pack2m`.
    pub(crate) layout: &'static str,
    /// Misses of the first level for 1000 instructions of everything.
    pub(crate) l1_misses_per_1000: f64,
    /// Misses of both levels for 1000 instructions.
    pub(crate) walks_per_1000: f64,
    /// Misses of the first level against a page each, per cent.
    pub(crate) l1_change_percent: f64,
    /// Walks against a page each, per cent.
    pub(crate) walks_change_percent: f64,
}

/// The same under another assumption.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sensitivity {
    /// What is different.
    pub(crate) varied: &'static str,
    /// The processor.
    pub(crate) processor: &'static str,
    /// The layout.
    pub(crate) layout: &'static str,
    /// Misses of the first level against a page each, per cent.
    pub(crate) l1_change_percent: f64,
    /// Walks against a page each, per cent.
    pub(crate) walks_change_percent: f64,
}

/// The processors modelled.
const PROCESSORS: [(&str, Geometry, &str); 2] = [
    (
        "zen4",
        Geometry { l1: 64, l2: 512, ways: 8 },
        "AMD, Software Optimization Guide for the AMD Zen4 Microarchitecture (57647), Memory Address Translation",
    ),
    (
        "neoverse-n1",
        Geometry { l1: 48, l2: 1280, ways: 5 },
        "Arm, Neoverse N1 Core Technical Reference Manual (100616), Memory Management Unit: TLB organization",
    ),
];

const VARIANTS: [(&str, Variant); 7] = [
    ("compiler's footprint x0.5", Variant { compiler: 0.5, ..Variant::BASE }),
    ("compiler's footprint x1", Variant::BASE),
    ("compiler's footprint x2", Variant { compiler: 2.0, ..Variant::BASE }),
    ("loops' share of time x0.5", Variant { loops: 0.5, ..Variant::BASE }),
    ("loops' share of time x2", Variant { loops: 2.0, ..Variant::BASE }),
    ("system calls x4 as long", Variant { call: 4, ..Variant::BASE }),
    ("kernel text on 4 KiB pages", Variant { kernel_huge: false, ..Variant::BASE }),
];

/// Runs the model; `quick` makes it short, for a look.
pub(crate) fn model(quick: bool) -> Model {
    let pairs = if quick { 1 } else { 4 };
    let mut sensitivity = Vec::new();
    for (varied, variant) in VARIANTS {
        let trace = Trace::new(variant, pairs);
        for (processor, geometry, _) in PROCESSORS {
            for counts in counts(&trace, geometry).into_iter().filter(|counts| counts.layout != "page") {
                let Counts { layout, l1_change_percent, walks_change_percent, .. } = counts;
                sensitivity.push(Sensitivity {
                    varied,
                    processor,
                    layout,
                    l1_change_percent,
                    walks_change_percent,
                });
            }
        }
    }
    Model {
        loaded: shape::LOADED,
        hot: shape::HOT,
        published: Published { misses_change_percent: -63.16, walks_change_percent: -42.71 },
        processors: processors(pairs),
        sensitivity,
    }
}

/// The assumptions that are thought right.
fn processors(pairs: usize) -> Vec<Processor> {
    let base = Trace::new(Variant::BASE, pairs);
    let counted = PROCESSORS.iter().map(|&(name, geometry, source)| Processor {
        name,
        l1_entries: geometry.l1,
        l2_entries: geometry.l2,
        l2_ways: geometry.ways,
        source,
        layouts: counts(&base, geometry),
    });
    counted.collect()
}

/// Every layout on one TLB.
fn counts(trace: &Trace, geometry: Geometry) -> Vec<Counts> {
    let counted = Layout::ALL.map(|layout| {
        let mut tlb = Tlb::new(geometry);
        trace.pages(layout, &mut tlb, Tlb::reset_counts, Tlb::fetch);
        (layout, tlb.misses, tlb.walks)
    });
    let (_, misses_of_page, walks_of_page) = counted[0];
    let per_1000 = |count: u64| count as f64 * 1000.0 / trace.instructions as f64;
    let change = |count: u64, of: u64| (count as f64 / of.max(1) as f64 - 1.0) * 100.0;
    counted
        .iter()
        .map(|&(layout, misses, walks)| Counts {
            layout: layout.name(),
            l1_misses_per_1000: per_1000(misses),
            walks_per_1000: per_1000(walks),
            l1_change_percent: change(misses, misses_of_page),
            walks_change_percent: change(walks, walks_of_page),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_never_miss_more_and_the_model_says_the_same_every_time() {
        let (first, second) = (processors(1), processors(1));
        for (first, second) in first.iter().zip(&second) {
            let [page, small, huge] = &first.layouts[..] else { panic!("three layouts") };
            assert!(page.l1_misses_per_1000 > small.l1_misses_per_1000);
            assert!(small.l1_misses_per_1000 >= huge.l1_misses_per_1000);
            assert!(page.walks_per_1000 >= small.walks_per_1000);
            assert_eq!(page.l1_change_percent, 0.0);
            assert_eq!(huge.l1_misses_per_1000, second.layouts[2].l1_misses_per_1000);
        }
    }
}
