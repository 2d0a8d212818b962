//! Why a text is no packet: where, what was found, and what to write instead.

use crate::limits::{MAX_BYTES, MAX_LAYERS};
use std::fmt;

/// Why a text is no packet. Columns count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something else should be here.
    #[error("column {column}: expected {expected}, found {found}")]
    Expected {
        /// Where.
        column: usize,
        /// What may be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// There is no such layer.
    #[error("column {column}: there is no layer {name}{}", Hint(.nearest, "the layers are", .known))]
    UnknownLayer {
        /// Where the name begins.
        column: usize,
        /// The name.
        name: String,
        /// The nearest known name, if one is near.
        nearest: Option<&'static str>,
        /// All names.
        known: Vec<&'static str>,
    },
    /// The layer has no such field.
    #[error("column {column}: {layer} has no field {name}{}", Hint(.nearest, "it has", .known))]
    UnknownField {
        /// Where the name begins.
        column: usize,
        /// The layer.
        layer: &'static str,
        /// The name.
        name: String,
        /// The nearest known name, if one is near.
        nearest: Option<&'static str>,
        /// All names.
        known: Vec<&'static str>,
    },
    /// The field is given twice.
    #[error("column {column}: {layer}.{field} is given twice; remove one of them")]
    Twice {
        /// Where the second one begins.
        column: usize,
        /// The layer.
        layer: &'static str,
        /// The field.
        field: &'static str,
    },
    /// The field cannot have this value.
    #[error("column {column}: {value:?} is no value for {layer}.{field}: expected {expected}")]
    Value {
        /// Where the value begins.
        column: usize,
        /// The layer.
        layer: &'static str,
        /// The field.
        field: &'static str,
        /// What was given.
        value: String,
        /// What can be given.
        expected: String,
    },
    /// The header would be longer than its length field can say.
    #[error("column {column}: the header of {layer} would have {bytes} bytes, at most {most} are possible")]
    HeaderTooLong {
        /// Where the layer begins.
        column: usize,
        /// The layer.
        layer: &'static str,
        /// Its length.
        bytes: usize,
        /// The largest length.
        most: usize,
    },
    /// The packet would be longer than [`MAX_BYTES`](crate::MAX_BYTES).
    #[error("column {column}: the packet would have {bytes} bytes, at most {} are possible", MAX_BYTES)]
    TooLong {
        /// Where it becomes too long.
        column: usize,
        /// Its length.
        bytes: usize,
    },
    /// More layers than [`MAX_LAYERS`](crate::MAX_LAYERS).
    #[error("column {column}: more than {} layers", MAX_LAYERS)]
    TooDeep {
        /// Where the first layer too many begins.
        column: usize,
    },
}

impl Error {
    /// Where in the text, in characters from 1.
    pub fn column(&self) -> usize {
        match self {
            Self::Expected { column, .. }
            | Self::UnknownLayer { column, .. }
            | Self::UnknownField { column, .. }
            | Self::Twice { column, .. }
            | Self::Value { column, .. }
            | Self::HeaderTooLong { column, .. }
            | Self::TooLong { column, .. }
            | Self::TooDeep { column } => *column,
        }
    }
}

/// The nearest name, or all of them.
struct Hint<'a>(&'a Option<&'static str>, &'a str, &'a [&'static str]);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(nearest) => write!(f, "; did you mean {nearest}?"),
            None => write!(f, "; {} {}", self.1, self.2.join(", ")),
        }
    }
}

/// The known name that the fewest changes of letters lead to, if these are few.
pub(crate) fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let distances = known.iter().map(|other| (distance(name, other), *other));
    let (changes, other) = distances.min()?;
    (changes <= name.chars().count().div_ceil(3)).then_some(other)
}

/// Insertions, removals, replacements and exchanges of neighbours that lead from one word to another.
fn distance(a: &str, b: &str) -> usize {
    // Longer words are near to nothing known.
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_is_near_and_another_word_is_not() {
        let known = ["dport", "sport", "seq"];
        assert_eq!(nearest("dprt", &known), Some("dport"));
        assert_eq!(nearest("sprot", &known), Some("sport"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!((distance("kitten", "sitting"), distance("eht", "eth")), (3, 1));
    }
}
