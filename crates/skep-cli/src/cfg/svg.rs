//! A program's blocks below one another, with jumps in lanes beside them.
//!
//! ```text
//!    back        block            ahead
//!   +-------> [ 0: ...    ]
//!   |         [ 5: if ... ] ------------+
//!   |               | else              | then
//!   +-------- [ 7: ...    ]             |
//!             [ 9: exit   ] <-----------+
//! ```
//!
//! Jumps to one block share a lane, and so do those that have no height in common. Short ones come first, so they are
//! nearest to the blocks and cross the fewest others.

use super::{Block, Edge};
use crate::output::xml as escaped;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Sizes in pixels. A character is as wide as in most monospace fonts of this size.
const FONT: f64 = 11.0;
const CHARACTER: f64 = 6.65;
const LINE: f64 = 15.0;
const PAD: f64 = 7.0;
const GAP: f64 = 22.0;
const LANE: f64 = 9.0;
const MARGIN: f64 = 16.0;

const STYLE: &str = "\
svg{background:#fff}text{font:11px ui-monospace,monospace;white-space:pre;fill:#1b1f24}\
rect{fill:#f6f8fa;stroke:#8c959f}path{fill:none;stroke-width:1.3}\
.s{fill:#57606a}.f{fill:#0550ae;font-weight:bold}.dim{opacity:.45}\
.next{stroke:#57606a}.then{stroke:#1a7f37}.else{stroke:#cf222e}.calls{stroke:#8250df;stroke-dasharray:4 3}\
@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}rect{fill:#161b22;stroke:#484f58}\
.s{fill:#8b949e}.f{fill:#79c0ff}.next{stroke:#8b949e}.then{stroke:#3fb950}.else{stroke:#f85149}.calls{stroke:#a371f7}}";

/// Where a block is.
struct Place {
    top: f64,
    bottom: f64,
}

/// A jump past other blocks.
struct Jump {
    from: f64,
    to: f64,
    edge: Edge,
    lane: usize,
}

/// The picture.
pub(super) fn picture(name: &str, labels: &[(Vec<String>, bool)], blocks: &[Block]) -> String {
    let longest = labels.iter().flat_map(|(lines, _)| lines).map(|line| line.chars().count()).max();
    let width = longest.unwrap_or(0) as f64 * CHARACTER + 2.0 * PAD;
    let mut places: Vec<Place> = Vec::with_capacity(blocks.len());
    let mut top = MARGIN + LINE + GAP;
    for (lines, _) in labels {
        let bottom = top + lines.len() as f64 * LINE + 2.0 * PAD;
        places.push(Place { top, bottom });
        top = bottom + GAP;
    }
    let (back, ahead) = jumps(blocks, &places);
    let lanes = |jumps: &[Jump]| jumps.iter().map(|jump| jump.lane + 1).max().unwrap_or(0) as f64 * LANE;
    let left = MARGIN + lanes(&back) + 2.0 * LANE;
    let right = left + width;
    let (whole, high) = (right + lanes(&ahead) + 2.0 * LANE + MARGIN, top + MARGIN - GAP);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" width=\"{whole:.0}\" height=\"{high:.0}\" viewBox=\"0 0 {whole:.0} {high:.0}\">\n\
         <title>{0}</title><style>{STYLE}</style>\n\
         <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" style=\"fill:context-stroke;stroke:none\"/></marker></defs>\n\
         <text x=\"{left:.0}\" y=\"{1:.0}\" class=\"f\">{0}, basic blocks: {2}</text>\n",
        escaped(name),
        MARGIN + FONT,
        blocks.len(),
    );
    for (place, (lines, reached)) in places.iter().zip(labels) {
        let class = if *reached { "" } else { " class=\"dim\"" };
        let high = place.bottom - place.top;
        let _ = writeln!(
            out,
            "<g{class}><rect x=\"{left:.0}\" y=\"{:.0}\" width=\"{width:.0}\" height=\"{high:.0}\" rx=\"4\"/>",
            place.top
        );
        for (index, line) in lines.iter().enumerate() {
            let class = match line.as_bytes() {
                [b';', ..] => " class=\"s\"",
                [.., b':'] if index == 0 => " class=\"f\"",
                _ => "",
            };
            let (x, y) = (left + PAD, place.top + PAD + index as f64 * LINE + FONT);
            let _ = writeln!(out, "<text x=\"{x:.0}\" y=\"{y:.0}\"{class}>{}</text>", escaped(line));
        }
        out.push_str("</g>\n");
    }
    for (at, block) in blocks.iter().enumerate() {
        for edge in block.edges.iter().filter(|(to, edge)| is_next(blocks, at, *to, *edge)) {
            let (x, from, to) = (left + width / 2.0, places[at].bottom, places[at + 1].top);
            let _ = writeln!(
                out,
                "<path class=\"{}\" d=\"M{x:.0} {from:.0}V{to:.0}\" marker-end=\"url(#a)\"/>",
                class(edge.1)
            );
        }
    }
    for (jumps, side, sign) in [(&back, left, -1.0), (&ahead, right, 1.0)] {
        for jump in jumps {
            let x = side + sign * (jump.lane as f64 + 2.0) * LANE;
            let _ = writeln!(
                out,
                "<path class=\"{}\" d=\"M{side:.0} {:.1}H{x:.0}V{:.1}H{side:.0}\" marker-end=\"url(#a)\"/>",
                class(jump.edge),
                jump.from,
                jump.to
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Whether an edge leads on to the block below.
fn is_next(blocks: &[Block], at: usize, to: usize, edge: Edge) -> bool {
    edge != Edge::Call && blocks.get(at + 1).is_some_and(|next| next.start == to)
}

/// The jumps back and those ahead, in lanes.
fn jumps(blocks: &[Block], places: &[Place]) -> (Vec<Jump>, Vec<Jump>) {
    let (mut back, mut ahead) = (Vec::new(), Vec::new());
    for (at, block) in blocks.iter().enumerate() {
        for (index, &(to, edge)) in block.edges.iter().enumerate() {
            let Ok(target) = blocks.binary_search_by_key(&to, |block| block.start) else { continue };
            if is_next(blocks, at, to, edge) {
                continue;
            }
            // Several edges leave a block at different heights.
            let from = places[at].bottom - PAD - 3.0 * index as f64;
            let jump = Jump { from: from.max(places[at].top), to: places[target].top + PAD, edge, lane: 0 };
            if target <= at { &mut back } else { &mut ahead }.push(jump);
        }
    }
    assign(&mut back);
    assign(&mut ahead);
    (back, ahead)
}

/// Gives the jumps to each block the first lane that is free at all of their heights.
fn assign(jumps: &mut [Jump]) {
    let mut groups: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for jump in &*jumps {
        let (low, high) = groups.entry(jump.to.to_bits()).or_insert((jump.to, jump.to));
        (*low, *high) = (low.min(jump.from), high.max(jump.from));
    }
    let mut order: Vec<(u64, (f64, f64))> = groups.into_iter().collect();
    order.sort_by(|(_, a), (_, b)| (a.1 - a.0).total_cmp(&(b.1 - b.0)));
    let mut lanes: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut lane_of = BTreeMap::new();
    for (target, (low, high)) in order {
        let free = |taken: &Vec<(f64, f64)>| taken.iter().all(|(from, to)| high < *from || *to < low);
        let lane = lanes.iter().position(free).unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        lanes[lane].push((low, high));
        lane_of.insert(target, lane);
    }
    for jump in jumps {
        jump.lane = lane_of[&jump.to.to_bits()];
    }
}

fn class(edge: Edge) -> &'static str {
    match edge {
        Edge::Next => "next",
        Edge::Then => "then",
        Edge::Else => "else",
        Edge::Call => "calls",
    }
}
