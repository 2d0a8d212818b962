//! `bpf_trace_printk` and `bpf_trace_vprintk`: messages to the log that the host chose.

use crate::program::Inner;
use skep_abi::RunEnv;
use std::fmt::Write;

/// The longest format and the longest string that are looked at, in bytes.
const FORMAT_MAX: usize = 1024;

pub(super) unsafe extern "C" fn trace_printk(
    format: u64,
    size: u64,
    a: u64,
    b: u64,
    c: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: the verifier proved `format` readable for `size` bytes; `env` is this run's.
    unsafe { print(format, size, &[a, b, c], env) }
}

pub(super) unsafe extern "C" fn trace_vprintk(
    format: u64,
    size: u64,
    values: u64,
    bytes: u64,
    _: u64,
    env: *mut RunEnv,
) -> u64 {
    let count = (bytes as u32 / 8).min(12) as usize;
    let mut arguments = [0u64; 12];
    for (i, argument) in arguments[..count].iter_mut().enumerate() {
        // SAFETY: the verifier proved `values` readable for `bytes`, or null with 0 bytes.
        *argument = unsafe { (values as *const u64).add(i).read_unaligned() };
    }
    // SAFETY: as above.
    unsafe { print(format, size, &arguments[..count], env) }
}

/// Formats a message and hands it to the log; returns its length in bytes.
///
/// # Safety
///
/// `format` is readable for `size` bytes and `env` is the environment of a run of [`Inner`].
unsafe fn print(format: u64, size: u64, arguments: &[u64], env: *mut RunEnv) -> u64 {
    let size = (size as u32 as usize).min(FORMAT_MAX);
    // SAFETY: the caller's promise; the bytes are copied before anything else can run.
    let bytes: Vec<u8> = (0..size).map(|i| unsafe { (format as *const u8).add(i).read_volatile() }).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = render(&bytes[..end], arguments);
    // SAFETY: `Program::enter` puts the running program's address there and keeps it alive.
    let program = unsafe { &*((*env).program as *const Inner) };
    program.runtime().log(program.name(), text.trim_end_matches('\n'));
    text.len() as u64
}

/// Formats as `printf` does, with the conversions that Linux allows programs: `%d %i %u %x %X %p %c %%` and
/// `%s`, which prints its argument as an address since no string was proved readable; length modifiers and
/// widths are taken, unknown conversions and missing arguments are shown as they stand.
pub(super) fn render(format: &[u8], arguments: &[u64]) -> String {
    let format = String::from_utf8_lossy(format);
    let mut arguments = arguments.iter().copied();
    let mut out = String::with_capacity(format.len() + 32);
    let mut rest = &*format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let spec = Spec::parse(&rest[at + 1..]);
        let whole = &rest[at..at + 1 + spec.len];
        rest = &rest[at + 1 + spec.len..];
        if spec.conversion == Some('%') {
            out.push('%');
            continue;
        }
        let value = if spec.is_known() { arguments.next() } else { None };
        match value {
            Some(value) => spec.write(&mut out, value),
            None => out.push_str(whole),
        }
    }
    out.push_str(rest);
    out
}

/// One conversion specification, taken apart.
struct Spec {
    /// Bytes after the percent sign.
    len: usize,
    zero: bool,
    left: bool,
    alternate: bool,
    width: usize,
    /// Whether `l`, `ll`, `j`, `z` or `t` was given: 64 bits instead of 32.
    long: bool,
    conversion: Option<char>,
}

impl Spec {
    fn parse(text: &str) -> Self {
        let mut spec = Self {
            len: 0,
            zero: false,
            left: false,
            alternate: false,
            width: 0,
            long: false,
            conversion: None,
        };
        for c in text.chars() {
            spec.len += c.len_utf8();
            match c {
                '0' if spec.width == 0 => spec.zero = true,
                '-' => spec.left = true,
                '#' => spec.alternate = true,
                '+' | ' ' | 'h' => {}
                '0'..='9' => spec.width = (spec.width * 10 + c as usize - '0' as usize).min(64),
                'l' | 'j' | 'z' | 't' => spec.long = true,
                _ => {
                    spec.conversion = Some(c);
                    break;
                }
            }
        }
        spec
    }

    fn is_known(&self) -> bool {
        matches!(self.conversion, Some('d' | 'i' | 'u' | 'x' | 'X' | 'p' | 'c' | 's'))
    }

    fn write(&self, out: &mut String, value: u64) {
        let unsigned = if self.long { value } else { u64::from(value as u32) };
        let signed = if self.long { value as i64 } else { i64::from(value as i32) };
        let prefix = if self.alternate { "0x" } else { "" };
        let text = match self.conversion {
            Some('d' | 'i') => signed.to_string(),
            Some('x') => format!("{prefix}{unsigned:x}"),
            Some('X') => format!("{prefix}{unsigned:X}"),
            Some('p' | 's') => format!("{value:#x}"),
            Some('c') => char::from(value as u8).to_string(),
            _ => unsigned.to_string(),
        };
        let fill = self.width.saturating_sub(text.chars().count());
        // Writing to a string cannot fail.
        let _ = if self.left {
            write!(out, "{text}{:fill$}", "")
        } else if self.zero && text.starts_with('-') {
            write!(out, "-{:0>width$}", &text[1..], width = text.len() - 1 + fill)
        } else if self.zero {
            write!(out, "{text:0>width$}", width = text.len() + fill)
        } else {
            write!(out, "{:fill$}{text}", "")
        };
    }
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn conversions_print_as_printf_does() {
        let minus = -5i64 as u64;
        let cases: &[(&str, &[u64], &str)] = &[
            ("port %d", &[80], "port 80"),
            ("%d %ld %i", &[minus, minus, minus], "-5 -5 -5"),
            ("%u", &[minus], "4294967291"),
            ("%lu", &[minus], "18446744073709551611"),
            ("%x|%X|%#x|%llx", &[0xbeef, 0xbeef, 0xbeef, u64::MAX], "beef|BEEF|0xbeef|ffffffffffffffff"),
            ("[%4d][%-4d][%04d][%05d]", &[7, 7, 7, minus], "[   7][7   ][0007][-0005]"),
            ("%c%c", &[104, 105], "hi"),
            ("100%% of %u", &[3], "100% of 3"),
            ("%p", &[0x1234], "0x1234"),
            ("%d and %d", &[1], "1 and %d"),
            ("%q %d", &[1], "%q 1"),
            ("%", &[], "%"),
            ("%l", &[1], "%l"),
            ("plain", &[1], "plain"),
        ];
        for (format, arguments, expected) in cases {
            assert_eq!(render(format.as_bytes(), arguments), *expected, "{format}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_replaced() {
        assert_eq!(render(b"\xff%d", &[1]), "\u{fffd}1");
    }
}
