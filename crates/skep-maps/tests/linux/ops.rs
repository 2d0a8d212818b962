//! Operations on maps and the answers to them, as data and as lines of text.
//!
//! ```text
//!   map hash key 4 value 8 entries 4 flags 0x1 cpus 2
//!   update 01000000 1122334455667788 0 -> ok
//!   lookup 01000000 -> 1122334455667788
//!   delete 02000000 -> error 2
//!   walk -> 01000000=1122334455667788
//! ```

use std::fmt;
use std::str::FromStr;

/// An operation on a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Lookup(Vec<u8>),
    Update(Vec<u8>, Vec<u8>, u64),
    Delete(Vec<u8>),
    /// Only for kinds with a defined order.
    Next(Option<Vec<u8>>),
    /// Walks from the first key to the last, looking each one up.
    Walk,
    /// Look-up and deletion in one operation.
    Take(Vec<u8>),
    /// Reads all elements in batches of that size, or takes them.
    LookupBatch(usize),
    TakeBatch(usize),
    UpdateBatch(Vec<Vec<u8>>, Vec<Vec<u8>>, u64),
    DeleteBatch(Vec<Vec<u8>>),
    /// For kinds without keys.
    Push(Vec<u8>, u64),
    Pop,
    Peek,
    /// For bloom filters.
    Contains(Vec<u8>),
}

/// The answer of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Error(i32),
    Bytes(Vec<u8>),
    Elements(Vec<(Vec<u8>, Vec<u8>)>),
    /// The number of elements that a batch processed, and the error that ended it.
    Batch(usize, i32),
}

impl Answer {
    pub(crate) fn of(result: Result<(), i32>) -> Self {
        result.map_or_else(Self::Error, |()| Self::Done)
    }

    pub(crate) fn bytes(result: Result<Vec<u8>, i32>) -> Self {
        result.map_or_else(Self::Error, Self::Bytes)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lookup(key) => write!(f, "lookup {}", hex(key)),
            Self::Update(key, value, flags) => write!(f, "update {} {} {flags}", hex(key), hex(value)),
            Self::Delete(key) => write!(f, "delete {}", hex(key)),
            Self::Next(None) => write!(f, "next"),
            Self::Next(Some(key)) => write!(f, "next {}", hex(key)),
            Self::Walk => write!(f, "walk"),
            Self::Take(key) => write!(f, "take {}", hex(key)),
            Self::LookupBatch(count) => write!(f, "lookup-batch {count}"),
            Self::TakeBatch(count) => write!(f, "take-batch {count}"),
            Self::UpdateBatch(keys, values, flags) => {
                write!(f, "update-batch {} {} {flags}", list(keys), list(values))
            }
            Self::DeleteBatch(keys) => write!(f, "delete-batch {}", list(keys)),
            Self::Push(value, flags) => write!(f, "push {} {flags}", hex(value)),
            Self::Pop => write!(f, "pop"),
            Self::Peek => write!(f, "peek"),
            Self::Contains(value) => write!(f, "contains {}", hex(value)),
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        Ok(match words[..] {
            ["lookup", key] => Self::Lookup(unhex(key)?),
            ["update", key, value, flags] => Self::Update(unhex(key)?, unhex(value)?, number(flags)?),
            ["delete", key] => Self::Delete(unhex(key)?),
            ["next"] => Self::Next(None),
            ["next", key] => Self::Next(Some(unhex(key)?)),
            ["walk"] => Self::Walk,
            ["take", key] => Self::Take(unhex(key)?),
            ["lookup-batch", count] => Self::LookupBatch(number(count)? as usize),
            ["take-batch", count] => Self::TakeBatch(number(count)? as usize),
            ["update-batch", keys, values, flags] => {
                Self::UpdateBatch(unlist(keys)?, unlist(values)?, number(flags)?)
            }
            ["delete-batch", keys] => Self::DeleteBatch(unlist(keys)?),
            ["push", value, flags] => Self::Push(unhex(value)?, number(flags)?),
            ["pop"] => Self::Pop,
            ["peek"] => Self::Peek,
            ["contains", value] => Self::Contains(unhex(value)?),
            _ => return Err(format!("not an operation: {text}")),
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => write!(f, "ok"),
            Self::Error(number) => write!(f, "error {number}"),
            Self::Bytes(bytes) => write!(f, "{}", hex(bytes)),
            Self::Elements(elements) if elements.is_empty() => write!(f, "nothing"),
            Self::Elements(elements) => {
                let text = |(key, value): &(Vec<u8>, Vec<u8>)| format!("{}={}", hex(key), hex(value));
                write!(f, "{}", elements.iter().map(text).collect::<Vec<_>>().join(" "))
            }
            Self::Batch(count, number) => write!(f, "{count}, then error {number}"),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let byte = |at| {
        let digits = text.get(at..at + 2).ok_or("half a byte")?;
        u8::from_str_radix(digits, 16).map_err(|error| format!("{digits}: {error}"))
    };
    (0..text.len()).step_by(2).map(byte).collect()
}

fn list(items: &[Vec<u8>]) -> String {
    items.iter().map(|item| hex(item)).collect::<Vec<_>>().join(",")
}

fn unlist(text: &str) -> Result<Vec<Vec<u8>>, String> {
    text.split(',').map(unhex).collect()
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}
