//! Two packets side by side.
//!
//! Layers are paired in order, by name; a layer that only one packet has is shown alone. Where to skip is what leaves
//! the most layers paired (the longest common subsequence; there are at most a few dozen layers).

use crate::fields::{Field, fields};
use std::fmt;

/// Two packets, field by field.
#[derive(Clone, Debug)]
pub struct SideBySide {
    /// The rows, in the order of the wire.
    pub rows: Vec<Row>,
    headings: (String, String),
}

/// A field of one packet or of both.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The layer.
    pub layer: &'static str,
    /// The field.
    pub name: String,
    /// In the first packet.
    pub left: Option<Field>,
    /// In the second packet.
    pub right: Option<Field>,
}

impl Row {
    /// Whether the packets differ in this field.
    pub fn differs(&self) -> bool {
        let value = |field: &Option<Field>| field.as_ref().map(|field| field.value.clone());
        value(&self.left) != value(&self.right)
    }
}

/// Compares two Ethernet frames.
pub fn side_by_side(left: &[u8], right: &[u8]) -> SideBySide {
    let (left, right) = (layers(left), layers(right));
    let mut rows = Vec::new();
    for (left, right) in paired(left, right) {
        pair_fields(left, right, &mut rows);
    }
    SideBySide { rows, headings: ("expected".to_owned(), "found".to_owned()) }
}

impl SideBySide {
    /// Names the packets for people; without it they are `expected` and `found`.
    #[must_use]
    pub fn headings(mut self, left: &str, right: &str) -> Self {
        self.headings = (left.to_owned(), right.to_owned());
        self
    }

    /// Whether the packets differ.
    pub fn differs(&self) -> bool {
        self.rows.iter().any(Row::differs)
    }
}

/// The fields of a packet, by layer.
fn layers(bytes: &[u8]) -> Vec<Vec<Field>> {
    let mut layers: Vec<Vec<Field>> = Vec::new();
    for field in fields(bytes) {
        match layers.last_mut().filter(|layer| layer[0].depth == field.depth) {
            Some(layer) => layer.push(field),
            None => layers.push(vec![field]),
        }
    }
    layers
}

type Pair = (Vec<Field>, Vec<Field>);

fn paired(left: Vec<Vec<Field>>, right: Vec<Vec<Field>>) -> Vec<Pair> {
    let (rows, columns) = (left.len(), right.len());
    let same = |i: usize, j: usize| left[i][0].layer == right[j][0].layer;
    // The most pairs from here on.
    let mut most = vec![vec![0usize; columns + 1]; rows + 1];
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            most[i][j] = match same(i, j) {
                true => most[i + 1][j + 1] + 1,
                false => most[i + 1][j].max(most[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < rows || j < columns {
        let (take_left, take_right) = match (i < rows, j < columns) {
            (true, true) if same(i, j) => (true, true),
            (true, true) => {
                let left = most[i + 1][j] >= most[i][j + 1];
                (left, !left)
            }
            sides => sides,
        };
        let side = |take: bool, at: &mut usize, all: &[Vec<Field>]| {
            let fields = if take { all[*at].clone() } else { Vec::new() };
            *at += usize::from(take);
            fields
        };
        let pair = (side(take_left, &mut i, &left), side(take_right, &mut j, &right));
        pairs.push(pair);
    }
    pairs
}

fn pair_fields(left: Vec<Field>, mut right: Vec<Field>, rows: &mut Vec<Row>) {
    for field in left {
        let other = right.iter().position(|other| other.name == field.name).map(|at| right.remove(at));
        rows.push(Row { layer: field.layer, name: field.name.clone(), left: Some(field), right: other });
    }
    for field in right {
        rows.push(Row { layer: field.layer, name: field.name.clone(), left: None, right: Some(field) });
    }
}

/// A table: byte, layer and field, both values. Rows that differ begin with `!`.
impl fmt::Display for SideBySide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |field: &Option<Field>| match field {
            Some(Field { value, usual: Some(usual), .. }) => format!("{value} (usual: {usual})"),
            Some(field) => field.value.clone(),
            None => "-".to_owned(),
        };
        let width = |side: fn(&Row) -> &Option<Field>, heading: &str| {
            let widths = self.rows.iter().map(|row| shown(side(row)).chars().count());
            widths.chain([heading.chars().count()]).max().unwrap_or(0)
        };
        let name = |row: &Row| format!("{}.{}", row.layer, row.name);
        let names = self.rows.iter().map(|row| name(row).len()).chain([5]).max().unwrap_or(5);
        let left = width(|row| &row.left, &self.headings.0);
        writeln!(f, "  {:>5}  {:names$}  {:left$}  {}", "byte", "field", self.headings.0, self.headings.1)?;
        for row in &self.rows {
            let mark = if row.differs() { '!' } else { ' ' };
            let at = row.left.as_ref().or(row.right.as_ref()).map_or(0, |field| field.bit / 8);
            let (a, b) = (shown(&row.left), shown(&row.right));
            writeln!(f, "{mark} {at:>5}  {:names$}  {a:left$}  {b}", name(row))?;
        }
        Ok(())
    }
}
