//! Prints values by a format: `bpf_printk` and related helpers.
//!
//! The values are numbers, and some of them are addresses. The verifier says which of them may be followed and how
//! far ([`Printed`]). Of the others, numbers that the program computed are printed as they are, and the rest as a
//! hash, so no address of the host is printed. A string or an internet address that cannot be read prints as empty
//! or as zeroes, as in Linux.

use skep_abi::{Conversion, FormatError, MAX_FORMAT, Piece, Printable, Printed, RunEnv, Shown, parse_format};
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The most bytes of a string that are printed.
const STRING_MAX: usize = 511;

/// Numbers from here up are negated errors, not addresses.
const FIRST_ERROR: u64 = -4095i64 as u64;

/// Takes the verifier's record about the call in progress out of the environment.
///
/// # Safety
///
/// `env` is the environment of a run in progress, to which no other reference exists.
pub(super) unsafe fn take_printed(env: *mut RunEnv) -> Printed {
    // SAFETY: the caller's promise.
    let address = std::mem::take(unsafe { &mut (*env).printed });
    if address == 0 {
        return Printed::default();
    }
    // SAFETY: engines store the address of a record that lives as long as the program's code, which this run keeps
    // alive.
    unsafe { *std::ptr::with_exposed_provenance::<Printed>(address as usize) }
}

/// The values that the array at `address` holds.
///
/// # Safety
///
/// `address` is readable for eight times the length of `values`.
pub(super) unsafe fn copy_values(address: u64, values: &mut [u64]) {
    for (at, value) in values.iter_mut().enumerate() {
        // SAFETY: the caller's promise; other threads may write there, as they may to any memory of a program.
        *value = unsafe { (address as *const u64).add(at).read_unaligned() };
    }
}

/// The bytes at `address` up to the first zero byte, at most `most`.
///
/// # Safety
///
/// `address` is readable up to that zero byte, or for `most` bytes.
pub(super) unsafe fn copy_string(address: u64, most: usize) -> Vec<u8> {
    // SAFETY: the caller's promise; other threads may write there, so each byte is read once.
    let byte = |at: usize| unsafe { (address as *const u8).add(at).read_volatile() };
    (0..most).map(byte).take_while(|byte| *byte != 0).collect()
}

/// Text of which only the first bytes are kept, but all are counted: a width may ask for millions.
pub(super) struct Output {
    kept: Vec<u8>,
    most: usize,
    /// Length of the whole text.
    pub(super) len: usize,
}

impl Output {
    fn push(&mut self, bytes: &[u8]) {
        let room = self.most - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.len += bytes.len();
    }

    fn fill(&mut self, byte: u8, count: usize) {
        let room = self.most - self.kept.len();
        self.kept.extend(std::iter::repeat_n(byte, count.min(room)));
        self.len += count;
    }

    /// The bytes that were kept.
    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }
}

/// Prints the values by the format, and keeps `most` bytes of the text.
///
/// # Errors
///
/// The first error in the format.
///
/// # Safety
///
/// What `printed` says of the values holds while this function runs.
pub(super) unsafe fn print(
    format: &[u8],
    values: &[u64],
    printed: &Printed,
    most: usize,
) -> Result<Output, FormatError> {
    debug_assert!(format.len() <= MAX_FORMAT);
    let mut out = Output { kept: Vec::new(), most, len: 0 };
    let mut values = values.iter().zip(&printed.values);
    for piece in parse_format(format, values.len())? {
        match piece {
            Piece::Text(text) => out.push(text),
            Piece::Value(conversion) => {
                let Some((value, printable)) = values.next() else { unreachable!("the format was counted") };
                // SAFETY: the caller's promise.
                unsafe { print_value(&mut out, &conversion, *value, *printable) };
            }
        }
    }
    Ok(out)
}

/// # Safety
///
/// What `printable` says of the value holds.
unsafe fn print_value(out: &mut Output, conversion: &Conversion, value: u64, printable: Printable) {
    let shown = if printable == Printable::Number { value } else { hashed(value) };
    // SAFETY: the caller's promise.
    let read = |most| unsafe { read(value, printable, most) };
    match conversion.shown {
        Shown::Signed { long } => {
            let number = if long { shown.cast_signed() } else { i64::from(shown as i32) };
            let sign = match () {
                () if number < 0 => "-",
                () if conversion.plus => "+",
                () if conversion.space => " ",
                () => "",
            };
            digits(out, conversion, sign, &number.unsigned_abs().to_string());
        }
        Shown::Unsigned { long } => {
            let number = if long { shown } else { u64::from(shown as u32) };
            digits(out, conversion, "", &number.to_string());
        }
        Shown::Hex { long, upper } => {
            let number = if long { shown } else { u64::from(shown as u32) };
            let text = if upper { format!("{number:X}") } else { format!("{number:x}") };
            digits(out, conversion, "", &text);
        }
        Shown::Char => text(out, conversion, &[shown as u8]),
        Shown::String => {
            // SAFETY: the caller's promise.
            text(out, conversion, &unsafe { string(value, printable) });
        }
        Shown::PlainString => {
            // SAFETY: the caller's promise.
            out.push(&unsafe { string(value, printable) });
        }
        Shown::UserString => {}
        Shown::Ipv4 { padded } => {
            let [a, b, c, d] = read(4).try_into().unwrap_or([0u8; 4]);
            let address =
                if padded { format!("{a:03}.{b:03}.{c:03}.{d:03}") } else { format!("{a}.{b}.{c}.{d}") };
            out.push(address.as_bytes());
        }
        Shown::Ipv6 { joined } => {
            let bytes: [u8; 16] = read(16).try_into().unwrap_or([0; 16]);
            let groups = bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
            let address = groups.collect::<Vec<_>>().join(if joined { "" } else { ":" });
            out.push(address.as_bytes());
        }
        Shown::Hashed => pointer(out, conversion, hashed(value)),
        Shown::Address => pointer(out, conversion, shown),
        Shown::Symbol => text(out, conversion, format!("{shown:#x}").as_bytes()),
    }
}

/// The string that a value points to; empty if it may not be followed.
///
/// # Safety
///
/// As [`print_value`].
unsafe fn string(value: u64, printable: Printable) -> Vec<u8> {
    let most = match printable {
        // A zero byte ends it.
        Printable::String { .. } => STRING_MAX,
        Printable::Memory { bytes } if value != 0 => STRING_MAX.min(bytes as usize),
        _ => return Vec::new(),
    };
    // SAFETY: the verifier proved that many bytes readable, or the string constant.
    unsafe { copy_string(value, most) }
}

/// That many bytes that a value points to, or none.
///
/// # Safety
///
/// As [`print_value`].
unsafe fn read(value: u64, printable: Printable, most: usize) -> Vec<u8> {
    match printable {
        Printable::Memory { bytes } | Printable::String { bytes } if value != 0 && bytes as usize >= most => {
            // SAFETY: the verifier proved that many bytes readable.
            (0..most).map(|at| unsafe { (value as *const u8).add(at).read_volatile() }).collect()
        }
        _ => Vec::new(),
    }
}

/// A hash in place of an address: the same for equal addresses, and different in each process. Null and errors are
/// unchanged.
fn hashed(value: u64) -> u64 {
    static SECRET: OnceLock<RandomState> = OnceLock::new();
    if value == 0 || value >= FIRST_ERROR {
        return value;
    }
    u64::from(SECRET.get_or_init(RandomState::new).hash_one(value) as u32)
}

/// A number in 16 digits, or as wide as the format says.
fn pointer(out: &mut Output, conversion: &Conversion, number: u64) {
    let whole = Conversion { width: 16, zero: true, ..*conversion };
    digits(out, if conversion.width == 0 { &whole } else { conversion }, "", &format!("{number:x}"));
}

fn digits(out: &mut Output, conversion: &Conversion, sign: &str, digits: &str) {
    let fill = (conversion.width as usize).saturating_sub(sign.len() + digits.len());
    let (before, zeroes, behind) = match () {
        () if conversion.left => (0, 0, fill),
        () if conversion.zero => (0, fill, 0),
        () => (fill, 0, 0),
    };
    out.fill(b' ', before);
    out.push(sign.as_bytes());
    out.fill(b'0', zeroes);
    out.push(digits.as_bytes());
    out.fill(b' ', behind);
}

fn text(out: &mut Output, conversion: &Conversion, text: &[u8]) {
    let fill = (conversion.width as usize).saturating_sub(text.len());
    let (before, behind) = if conversion.left { (0, fill) } else { (fill, 0) };
    out.fill(b' ', before);
    out.push(text);
    out.fill(b' ', behind);
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
