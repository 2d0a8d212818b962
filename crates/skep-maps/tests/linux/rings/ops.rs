//! Operations on ring buffers and the answers to them, as data and as lines of text.
//!
//! ```text
//!   ring 4096
//!   output 5 0 -> ok
//!   reserve 64 0 output 8 1 hold discard 2 -> avail 88 at 16, ok, header 80000040
//!   headers -> 00000005 40000040 00000008
//!   take -> 5 bytes 060d141b22
//!   query 2 -> 16
//!   asleep 1 0 2 -> woken by 2
//! ```

use std::fmt;
use std::str::FromStr;

/// What is asked of a ring buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// A program submits a copy of that many bytes, with these flags.
    Output(usize, u64),
    Reserve(Reserve),
    /// A program asks for what has this number.
    Query(u64),
    /// The consumer takes the next record.
    Take,
    /// The first words of the headers of all records that are there, by the bits of `<linux/bpf.h>`.
    Headers,
    /// While the consumer has taken everything and sleeps, programs submit a record with each of these flags, until it
    /// is woken.
    Asleep(Vec<u64>),
    /// The host treats it as a map with keys: `lookup`, `update`, `delete`, `next`.
    Host(&'static str),
}

/// Those of [`Op::Host`].
const KEYED: [&str; 4] = ["lookup", "update", "delete", "next"];

/// A program reserves a record, fills it and gives it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserve {
    pub(crate) len: usize,
    pub(crate) flags: u64,
    /// It is not filled.
    pub(crate) bare: bool,
    /// Meanwhile another record is submitted.
    pub(crate) output: Option<(usize, u64)>,
    /// Meanwhile the consumer looks at the header.
    pub(crate) hold: bool,
    pub(crate) discard: bool,
    /// Of the submission, or of the discarding.
    pub(crate) end: u64,
}

/// What a program sees of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// While the record was reserved: bytes that are not taken yet, and the producers' position.
    pub(crate) available: u64,
    pub(crate) position: u64,
    pub(crate) output: Option<i64>,
    /// The header's first word.
    pub(crate) held: Option<u32>,
}

/// What a ring buffer answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// 0, or a negative error number.
    Output(i64),
    /// `None` for no record.
    Reserved(Option<Reserved>),
    Number(u64),
    Taken(Option<Vec<u8>>),
    Headers(Vec<u32>),
    /// By which of the records.
    Woken(Option<usize>),
    /// To [`Op::Host`]: an error number.
    Refused(i32),
}

/// The bytes of records: by the number of the operation.
pub(crate) fn bytes(len: usize, number: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 31) as u8).collect()
}

/// Lengths that programs reserve, which Linux wants to know when they are loaded.
pub(crate) fn lengths(size: usize) -> [usize; 13] {
    [0, 1, 5, 8, 64, 1000, size / 2, size - 17, size - 16, size - 15, size - 8, size, 2 * size]
}

/// Operations that meet every edge of a ring of that size.
pub(crate) fn edges(size: usize) -> Vec<Op> {
    let reserve = |len| Op::Reserve(Reserve { len, ..Reserve::default() });
    let mut ops: Vec<Op> = [0, 1, 2, 3, 4, u64::MAX].map(Op::Query).into();
    ops.extend([Op::Take, Op::Headers]);
    ops.extend(KEYED.map(Op::Host));
    // Lengths that are no multiples of 8, and flags that there are and that there are not.
    for len in [0, 1, 5, 8, 9] {
        ops.extend([Op::Output(len, 0), reserve(len)]);
    }
    let lens = lengths(size);
    ops.retain(|op| !matches!(op, Op::Reserve(reserve) if !lens.contains(&reserve.len)));
    for flags in [1, 2, 3, 4, 5, 1 << 32, 1 << 63, u64::MAX] {
        ops.push(Op::Output(8, flags));
        ops.push(Op::Reserve(Reserve { len: 8, flags, ..Reserve::default() }));
        for discard in [false, true] {
            ops.push(Op::Reserve(Reserve { len: 5, discard, end: flags, ..Reserve::default() }));
        }
    }
    ops.push(Op::Headers);
    ops.extend([0, 2, 3].map(Op::Query));
    ops.extend(vec![Op::Take; 20]);
    ops.extend([0, 2, 3].map(Op::Query));
    // As long as the ring is, or nearly, by either way; and what comes behind.
    for len in lens {
        for op in [Op::Output(len, 0), reserve(len)] {
            ops.extend([op, Op::Query(0), Op::Output(0, 0), reserve(1), Op::Headers]);
            ops.extend([Op::Take, Op::Take, Op::Take, Op::Query(2)]);
        }
    }
    // Filled by many, to all but the last word; and only what was taken is free.
    let part = size / 16 - 8;
    ops.extend(vec![Op::Output(part, 0); 16]);
    ops.extend([part - 7, part - 8].map(|len| Op::Output(len, 0)));
    ops.extend([
        reserve(0),
        Op::Query(0),
        Op::Take,
        Op::Output(part + 1, 0),
        Op::Output(part, 0),
        reserve(0),
    ]);
    ops.extend(vec![Op::Take; 17]);
    // Discarded records, also the last ones, and records in records.
    for discard in [false, true] {
        let outer = |len| Reserve { len, discard, hold: true, ..Reserve::default() };
        ops.push(Op::Reserve(outer(64)));
        ops.push(Op::Reserve(Reserve { output: Some((9, 0)), ..outer(5) }));
        ops.push(Op::Reserve(Reserve { output: Some((size, 0)), bare: true, ..outer(1000) }));
        ops.push(Op::Reserve(Reserve { output: Some((8, 4)), bare: true, ..outer(1) }));
        ops.extend([Op::Headers, Op::Take, Op::Query(2), Op::Take, Op::Take, Op::Take, Op::Query(2)]);
    }
    // Flags that control wake-ups.
    for flags in [&[0][..], &[1], &[2], &[3], &[1, 0, 0], &[1, 1, 2], &[1, 3]] {
        ops.push(Op::Asleep(flags.to_vec()));
    }
    ops
}

/// Random operations, the same for the same numbers.
pub(crate) fn random(size: usize, mut next: impl FnMut(u64) -> u64) -> impl Iterator<Item = Op> {
    let lens = lengths(size);
    std::iter::repeat_with(move || {
        let mut flags = || match next(8) {
            0..5 => 0,
            5 => 1 + next(3),
            6 => next(8),
            _ => 1 << next(64),
        };
        let (output, reserve, end) = (flags(), flags(), flags());
        let mut len = || match next(10) {
            0..6 => next(100) as usize,
            6..9 => next(size as u64 / 4) as usize,
            _ => next(2 * size as u64) as usize,
        };
        let (first, second) = (len(), len());
        // Mostly short ones.
        let known = if next(4) == 0 { lens.len() } else { 6 };
        match next(20) {
            0..5 => Op::Output(first, output),
            5..10 => Op::Reserve(Reserve {
                len: lens[next(known as u64) as usize],
                flags: if next(4) == 0 { reserve } else { 0 },
                bare: false,
                output: (next(3) == 0).then_some((second, output)),
                hold: false,
                discard: next(3) == 0,
                end,
            }),
            10 => Op::Headers,
            11 => Op::Query(next(5)),
            _ => Op::Take,
        }
    })
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(len, flags) => write!(f, "output {len} {flags}"),
            Self::Reserve(Reserve { len, flags, bare, output, hold, discard, end }) => {
                write!(f, "reserve {len} {flags} ")?;
                f.write_str(if *bare { "bare " } else { "" })?;
                if let Some((len, flags)) = output {
                    write!(f, "output {len} {flags} ")?;
                }
                f.write_str(if *hold { "hold " } else { "" })?;
                write!(f, "{} {end}", if *discard { "discard" } else { "submit" })
            }
            Self::Query(what) => write!(f, "query {what}"),
            Self::Take => write!(f, "take"),
            Self::Headers => write!(f, "headers"),
            Self::Asleep(flags) => {
                write!(f, "asleep")?;
                flags.iter().try_for_each(|flags| write!(f, " {flags}"))
            }
            Self::Host(what) => f.write_str(what),
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        let len = |text: &str| number(text).map(|len| len as usize);
        let words: Vec<&str> = text.split(' ').collect();
        Ok(match words[..] {
            ["output", bytes, flags] => Self::Output(len(bytes)?, number(flags)?),
            ["reserve", bytes, flags, ref rest @ ..] => {
                let mut reserve = Reserve { len: len(bytes)?, flags: number(flags)?, ..Reserve::default() };
                let mut rest = rest;
                loop {
                    rest = match rest {
                        ["bare", rest @ ..] => {
                            reserve.bare = true;
                            rest
                        }
                        ["output", bytes, flags, rest @ ..] => {
                            reserve.output = Some((len(bytes)?, number(flags)?));
                            rest
                        }
                        ["hold", rest @ ..] => {
                            reserve.hold = true;
                            rest
                        }
                        [end @ ("submit" | "discard"), flags] => {
                            (reserve.discard, reserve.end) = (*end == "discard", number(flags)?);
                            break Self::Reserve(reserve);
                        }
                        _ => return Err(format!("not a reservation: {text}")),
                    }
                }
            }
            ["query", what] => Self::Query(number(what)?),
            ["take"] => Self::Take,
            ["headers"] => Self::Headers,
            ["asleep", ref flags @ ..] => {
                Self::Asleep(flags.iter().copied().map(number).collect::<Result<_, _>>()?)
            }
            [word] => {
                let known = KEYED.iter().find(|known| **known == word);
                Self::Host(known.ok_or_else(|| format!("not an operation: {text}"))?)
            }
            _ => return Err(format!("not an operation: {text}")),
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(status) => f.write_str(&said(*status)),
            Self::Reserved(None) => write!(f, "null"),
            Self::Reserved(Some(Reserved { available, position, output, held })) => {
                write!(f, "avail {available} at {position}")?;
                if let Some(status) = output {
                    write!(f, ", {}", said(*status))?;
                }
                held.iter().try_for_each(|word| write!(f, ", header {word:08x}"))
            }
            Self::Number(number) => write!(f, "{number}"),
            Self::Taken(None) => write!(f, "nothing"),
            Self::Taken(Some(bytes)) => {
                write!(f, "{} bytes ", bytes.len())?;
                // Long ones by the first bytes and a hash (FNV-1a).
                bytes.iter().take(16).try_for_each(|byte| write!(f, "{byte:02x}"))?;
                if bytes.len() <= 16 {
                    return Ok(());
                }
                let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
                write!(f, ".. {:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash))
            }
            Self::Headers(words) if words.is_empty() => write!(f, "none"),
            Self::Headers(words) => {
                f.write_str(&words.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" "))
            }
            Self::Woken(None) => write!(f, "not woken"),
            Self::Woken(Some(which)) => write!(f, "woken by {which}"),
            Self::Refused(number) => write!(f, "error {number}"),
        }
    }
}

fn said(status: i64) -> String {
    if status == 0 { "ok".to_owned() } else { format!("error {}", -status) }
}
