//! The targets of `skep-bench pack`, as far as the rows and the model can answer them.

use super::Row;
use crate::itlb::Model;
use crate::report::Target;

pub(super) fn targets(rows: &[Row], model: &Model) -> Vec<Target> {
    let mut targets = Vec::new();
    let wanted = [(160, "none", 20.0), (2000, "none", 45.0), (8000, "none", 45.0), (160, "large", 40.0)];
    for (n, footprint, wanted) in wanted {
        let row = rows
            .iter()
            .find(|row| (row.n, row.size, row.order, row.footprint) == (n, 150, "random", footprint));
        let Some(row) = row else { continue };
        let between = if footprint == "large" { ", between footprint calls" } else { "" };
        let what =
            |pack| format!("less time a call, {n} programs of 150 bytes, random order{between}, {pack}");
        if let Some(ns) = row.ns_pack2m {
            targets.push(Target::at_least(what("huge packs"), "%", wanted, less(ns, row.ns_page)));
        }
        targets.push(Target::at_least(what("4 KiB packs"), "%", wanted, less(row.ns_pack4k, row.ns_page)));
    }
    for processor in &model.processors {
        for layout in processor.layouts.iter().filter(|layout| layout.layout != "page") {
            let what = format!("fewer L1 iTLB misses, modelled, {}, {}", processor.name, layout.layout);
            targets.push(Target::at_least(what, "%", 60.0, -layout.l1_change_percent));
        }
    }
    // Among the most programs, where the one page that is partly used no longer counts.
    let most = rows.iter().map(|row| row.n).max().unwrap_or(0);
    for row in rows {
        if row.n == most && row.order == "random" && row.footprint == "none" {
            let measured = row.memory_per_code_byte.pack4k;
            let what =
                format!("memory for each byte of code, {most} programs of {} bytes, 4 KiB packs", row.size);
            targets.push(Target::at_most(what, "bytes", 1.10, measured));
        }
    }
    targets
}

/// How many per cent less `of` is than `than`.
fn less(of: f64, than: f64) -> f64 {
    (1.0 - of / than) * 100.0
}
