//! Values of a kernel's configuration, which programs read as variables (`extern int CONFIG_HZ __kconfig`).
//!
//! A configuration is a text with lines `CONFIG_HZ=250`, `CONFIG_BPF=y`, `CONFIG_LSM="bpf"`. The type of a variable
//! decides which values it can take:
//!
//! | type | takes |
//! |---|---|
//! | `bool` | `y`, `n` |
//! | `enum libbpf_tristate` | `y`, `n`, `m` |
//! | `char` | `y`, `n`, `m` as letters, small numbers |
//! | `char[]` | `"text"`, cut to fit |
//! | other integers | decimal and hexadecimal numbers that fit |

use std::collections::HashMap;

use skep_btf::{Btf, Kind};

use crate::error::Error;
use crate::maps::Variable;

/// The size in bytes of the longest text that a variable may take, including the terminating zero.
const MAX_TEXT: u32 = 1024;

/// A variable of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: Box<str>,
    shape: Shape,
    /// Bytes from the start of the map's value.
    pub(crate) offset: u32,
    size: u32,
    type_name: Box<str>,
}

/// The values that it can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Bool,
    Tristate,
    Char,
    Int { signed: bool },
    Text,
}

impl Config {
    /// A variable of that type, not yet placed.
    pub(crate) fn declared(btf: &Btf, name: &str, ty: u32) -> Result<Self, Error> {
        let bad = |reason| Error::ConfigType { name: name.into(), reason };
        let size = btf.size(ty)?;
        let plain = btf.resolve(ty)?;
        let is_char = |id| -> Result<bool, Error> {
            let ty = btf.resolve(id)?;
            Ok(ty.kind == Kind::Int && ty.size() == Some(1) && !ty.int().is_some_and(|int| int.is_bool))
        };
        let shape = match plain.kind {
            Kind::Int if plain.int().is_some_and(|int| int.is_bool) && size == 1 => Shape::Bool,
            Kind::Int if size == 1 => Shape::Char,
            Kind::Int if matches!(size, 2 | 4 | 8) => Shape::Int { signed: plain.is_signed() },
            Kind::Enum if plain.name()? == "libbpf_tristate" && size == 4 => Shape::Tristate,
            Kind::Array if plain.array().map(|array| is_char(array.element)).transpose()? == Some(true) => {
                match size {
                    1..=MAX_TEXT => Shape::Text,
                    _ => return Err(bad("must be an array of 1 to 1024 characters")),
                }
            }
            _ => return Err(bad("must be an integer, bool, enum libbpf_tristate, char or char[]")),
        };
        let type_name = btf.type_name(ty)?.into();
        Ok(Self { name: name.into(), shape, offset: 0, size, type_name })
    }

    /// The variable as the object's users see it.
    pub(crate) fn variable(&self) -> Variable {
        Variable {
            name: self.name.to_string(),
            offset: self.offset,
            size: self.size,
            read_only: true,
            type_name: Some(self.type_name.to_string()),
        }
    }

    /// Writes a value of the configuration into the map's value.
    fn set(&self, value: &str, into: &mut [u8]) -> Result<(), Error> {
        let bad = |reason| Error::ConfigValue { name: self.name.to_string(), value: value.into(), reason };
        let start = self.offset as usize;
        let Some(into) = into.get_mut(start..start + self.size as usize) else { return Ok(()) };
        if let Some(text) = value.strip_prefix('"') {
            let text = text.strip_suffix('"').ok_or_else(|| bad("has no closing quotation mark"))?;
            if self.shape != Shape::Text {
                return Err(bad("is a text, but the variable is none"));
            }
            let kept = text.len().min(into.len() - 1);
            into.fill(0);
            into[..kept].copy_from_slice(&text.as_bytes()[..kept]);
            return Ok(());
        }
        let number = match (value, self.shape) {
            ("y", Shape::Bool | Shape::Tristate) => 1,
            ("n", Shape::Bool | Shape::Tristate) => 0,
            ("m", Shape::Tristate) => 2,
            ("y" | "n" | "m", Shape::Char) => value.as_bytes()[0].into(),
            ("y" | "n" | "m", _) => return Err(bad("is a choice, but the variable has another type")),
            (_, Shape::Char | Shape::Int { .. }) => {
                self.number(value).ok_or_else(|| bad("is no number that fits the variable"))?
            }
            _ => return Err(bad("is a number, but the variable has another type")),
        };
        into.copy_from_slice(&number.to_le_bytes()[..into.len()]);
        Ok(())
    }

    /// A number that fits, sign-extended.
    fn number(&self, text: &str) -> Option<u64> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16).ok()?,
            None => digits.parse().ok()?,
        };
        let value = if negative { -i128::from(magnitude) } else { i128::from(magnitude) };
        let bits = self.size * 8;
        let fits = match self.shape {
            Shape::Int { signed: true } => value >= -(1 << (bits - 1)) && value < 1 << (bits - 1),
            _ => value >= 0 && value < 1 << bits,
        };
        fits.then_some(value as u64)
    }
}

/// Places each variable at a multiple of its size. Returns the bytes that all of them take.
pub(crate) fn place(variables: &mut [Config]) -> Result<u32, Error> {
    let mut end = 0u32;
    for variable in variables {
        let align = if variable.shape == Shape::Text { 1 } else { variable.size };
        // At most 1024 bytes each: there would have to be four million.
        let start = end.checked_next_multiple_of(align);
        let after = start.and_then(|start| start.checked_add(variable.size));
        let (Some(start), Some(after)) = (start, after) else {
            return Err(Error::ConfigType { name: variable.name.to_string(), reason: "is one too many" });
        };
        (variable.offset, end) = (start, after);
    }
    Ok(end)
}

/// Writes the values of a configuration. Returns for each variable whether the configuration has it.
pub(crate) fn fill(
    variables: &[Config],
    text: &str,
    release: Option<&str>,
    into: &mut [u8],
) -> Result<Vec<bool>, Error> {
    let mut values: HashMap<&str, &str> = HashMap::new();
    for line in text.lines() {
        if let Some((name, value)) = line.split_once('=')
            && name.starts_with("CONFIG_")
        {
            values.insert(name.trim_end(), value.trim_end());
        }
    }
    let version = release.or_else(|| release_of(text)).and_then(version);
    let number;
    if let Some(version) = version {
        number = version.to_string();
        values.insert("LINUX_KERNEL_VERSION", &number);
        let since = |major: u32, minor: u32| if version >= major << 16 | minor << 8 { "y" } else { "n" };
        values.insert("LINUX_HAS_BPF_COOKIE", since(5, 15));
        values.insert("LINUX_HAS_SYSCALL_WRAPPER", since(4, 17));
    }
    let mut known = Vec::with_capacity(variables.len());
    for variable in variables {
        if let Some(value) = values.get(&*variable.name) {
            variable.set(value, into)?;
        }
        known.push(values.contains_key(&*variable.name));
    }
    Ok(known)
}

/// The release that the heading of a configuration names: `# Linux/x86 6.18.44 Kernel Configuration`.
fn release_of(text: &str) -> Option<&str> {
    let heading = text.lines().take(8).find_map(|line| line.strip_prefix("# Linux/"))?;
    heading.split_whitespace().nth(1)
}

/// A release as a number, as `KERNEL_VERSION(a, b, c)` makes it; `c` is at most 255.
fn version(release: &str) -> Option<u32> {
    let release = release.split(['-', '+', '~', ' ']).next()?;
    let mut parts = release.split('.').map(str::parse::<u32>);
    let mut next = |default| parts.next().map_or(Ok(default), |part| part).ok();
    let (major, minor, patch) = (next(u32::MAX)?, next(0)?, next(0)?);
    (major < 1 << 16 && minor < 1 << 8).then(|| major << 16 | minor << 8 | patch.min(255))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, shape: Shape, size: u32) -> Config {
        Config { name: name.into(), shape, offset: 0, size, type_name: "".into() }
    }

    #[test]
    fn values_are_read_as_their_types_have_it() {
        let set = |shape, size, value: &str| {
            let mut bytes = vec![0xaa; size as usize];
            variable("CONFIG_X", shape, size).set(value, &mut bytes).map(|()| bytes)
        };
        let int = Shape::Int { signed: true };
        assert_eq!(set(Shape::Bool, 1, "y").unwrap(), [1]);
        assert_eq!(set(Shape::Bool, 1, "n").unwrap(), [0]);
        assert_eq!(set(Shape::Tristate, 4, "m").unwrap(), [2, 0, 0, 0]);
        assert_eq!(set(Shape::Char, 1, "m").unwrap(), *b"m");
        assert_eq!(set(int, 4, "-2").unwrap(), (-2i32).to_le_bytes());
        assert_eq!(set(int, 2, "0x7fff").unwrap(), [0xff, 0x7f]);
        assert_eq!(set(Shape::Int { signed: false }, 8, "18446744073709551615").unwrap(), [0xff; 8]);
        assert_eq!(set(Shape::Text, 4, "\"bpf,yama\"").unwrap(), *b"bpf\0");
        assert_eq!(set(Shape::Text, 4, "\"b\"").unwrap(), *b"b\0\0\0");
        for (shape, size, value) in [
            (Shape::Bool, 1, "m"),
            (Shape::Bool, 1, "1"),
            (int, 2, "0x8000"),
            (int, 4, "y"),
            (int, 4, "\"4\""),
            (Shape::Int { signed: false }, 2, "-1"),
            (Shape::Text, 4, "\"open"),
            (Shape::Text, 4, "5"),
        ] {
            assert!(set(shape, size, value).is_err(), "{shape:?} {value}");
        }
    }

    #[test]
    fn the_release_is_given_or_stands_in_the_heading() {
        let variables = [variable("LINUX_KERNEL_VERSION", Shape::Int { signed: true }, 4)];
        let version = |text: &str, release| {
            let mut bytes = [0; 4];
            let known = fill(&variables, text, release, &mut bytes).unwrap();
            known[0].then(|| u32::from_le_bytes(bytes))
        };
        let text =
            "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 6.18.44 Kernel Configuration\n";
        assert_eq!(version(text, None), Some(6 << 16 | 18 << 8 | 44));
        assert_eq!(version(text, Some("5.4.300-generic")), Some(5 << 16 | 4 << 8 | 255));
        assert_eq!(version("", Some("7.0")), Some(7 << 16));
        assert_eq!(version("", Some("none")), None);
        assert_eq!(version("", None), None);
    }

    #[test]
    fn variables_stand_at_multiples_of_their_sizes() {
        let mut variables = [
            variable("a", Shape::Bool, 1),
            variable("b", Shape::Int { signed: true }, 8),
            variable("c", Shape::Text, 3),
            variable("d", Shape::Int { signed: true }, 2),
        ];
        assert_eq!(place(&mut variables).unwrap(), 22);
        assert_eq!(variables.map(|variable| variable.offset), [0, 8, 16, 20]);
    }
}
