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

use serde_json::{Value, json};
use shape::{Layout, Trace, Variant};
use tlb::{Geometry, Tlb};

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
pub(crate) fn model(quick: bool) -> Value {
    let pairs = if quick { 1 } else { 4 };
    // Without a page each, which all is compared with.
    let mut sensitivity = Vec::new();
    for (varied, variant) in VARIANTS {
        let trace = Trace::new(variant, pairs);
        for (processor, geometry, _) in PROCESSORS {
            for counts in &counts(&trace, geometry)[1..] {
                sensitivity.push(json!({
                    "varied": varied, "processor": processor, "layout": counts["layout"],
                    "l1_change_percent": counts["l1_change_percent"],
                    "walks_change_percent": counts["walks_change_percent"],
                }));
            }
        }
    }
    json!({
        // Programs loaded, and programs that run.
        "loaded": shape::LOADED, "hot": shape::HOT,
        // Published with the series that packed programs in the Linux kernel for Arm: the change of `iTLB-load-misses`
        // a second and of `ITLB_WALK` for each instruction, from a page each to packs.
        "published": {"misses_change_percent": -63.16, "walks_change_percent": -42.71},
        "processors": processors(pairs),
        "sensitivity": sensitivity,
    })
}

/// The assumptions that are thought right.
fn processors(pairs: usize) -> Vec<Value> {
    let base = Trace::new(Variant::BASE, pairs);
    let counted = |(name, geometry, source): (&str, Geometry, &str)| {
        json!({
            "name": name, "source": source, "layouts": counts(&base, geometry),
            "l1_entries": geometry.l1, "l2_entries": geometry.l2, "l2_ways": geometry.ways,
        })
    };
    PROCESSORS.into_iter().map(counted).collect()
}

/// Every layout on one TLB: misses of the first level and of both for 1000 instructions of everything, and their change
/// against a page each in per cent.
fn counts(trace: &Trace, geometry: Geometry) -> [Value; 3] {
    let counted = Layout::ALL.map(|layout| {
        let mut tlb = Tlb::new(geometry);
        trace.pages(layout, &mut tlb, Tlb::reset_counts, Tlb::fetch);
        (layout, tlb.misses, tlb.walks)
    });
    let (_, misses_of_page, walks_of_page) = counted[0];
    let per_1000 = |count: u64| count as f64 * 1000.0 / trace.instructions as f64;
    let change = |count: u64, of: u64| (count as f64 / of.max(1) as f64 - 1.0) * 100.0;
    counted.map(|(layout, misses, walks)| {
        json!({
            "layout": layout,
            "l1_misses_per_1000": per_1000(misses), "l1_change_percent": change(misses, misses_of_page),
            "walks_per_1000": per_1000(walks), "walks_change_percent": change(walks, walks_of_page),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::number;

    #[test]
    fn packs_never_miss_more_and_the_model_says_the_same_every_time() {
        let (first, second) = (processors(1), processors(1));
        assert_eq!(first, second);
        for processor in &first {
            let of = |layout: usize, key| number(&processor["layouts"][layout], key);
            let misses = |layout| of(layout, "l1_misses_per_1000");
            assert!(misses(0) > misses(1) && misses(1) >= misses(2));
            assert!(of(0, "walks_per_1000") >= of(1, "walks_per_1000"));
            assert_eq!(of(0, "l1_change_percent"), 0.0);
        }
    }
}
