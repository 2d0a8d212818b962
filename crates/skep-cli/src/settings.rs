//! Settings of a load that a command takes: values of variables, and capacities of maps.

use crate::failure::Failure;
use skep::{Linker, Object};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Settings {
    /// Set a global variable before the program is loaded, `const volatile` ones included: a number, true or false, or
    /// text for an array of characters (in double quotes if that has 1, 2, 4 or 8).
    #[arg(long, value_name = "VARIABLE=VALUE")]
    set: Vec<String>,
    /// Create a map with another capacity.
    #[arg(long, value_name = "MAP=N")]
    max_entries: Vec<String>,
    /// The configuration of the kernel that `extern ... __kconfig` variables take their values from.
    #[arg(long, value_name = "FILE")]
    pub(crate) kconfig: Option<PathBuf>,
}

impl Settings {
    /// Applies them to a load of `object`.
    pub(crate) fn apply<'a>(&self, object: &Object, mut linker: Linker<'a>) -> Result<Linker<'a>, Failure> {
        let variables = object.variables();
        for given in &self.set {
            let (name, value) = split("--set", "VARIABLE=VALUE", given)?;
            let Some(variable) = variables.iter().find(|variable| variable.name == name) else {
                let known: Vec<_> = variables.iter().map(|variable| &*variable.name).collect();
                let text = format!("--set {given}: unknown variable {name}; there are {}", list(&known));
                return Err(Failure::Usage(text));
            };
            let bytes = bytes_of(value, variable.size)
                .ok_or_else(|| Failure::Usage(format!("--set {given}: {}", expected(variable.size))))?;
            linker = linker.variable(name, &bytes);
        }
        for given in &self.max_entries {
            let (map, entries) = split("--max-entries", "MAP=N", given)?;
            if object.maps().iter().all(|def| def.name != map) {
                let known: Vec<_> = object.maps().iter().map(|def| &*def.name).collect();
                let text = format!("--max-entries {given}: unknown map {map}; there are {}", list(&known));
                return Err(Failure::Usage(text));
            }
            let entries = entries.parse().map_err(|_| {
                Failure::Usage(format!("--max-entries {given}: expected a number up to {}", u32::MAX))
            })?;
            linker = linker.max_entries(map, entries);
        }
        Ok(linker)
    }
}

fn split<'a>(option: &str, form: &str, given: &'a str) -> Result<(&'a str, &'a str), Failure> {
    given.split_once('=').ok_or_else(|| Failure::Usage(format!("{option} {given}: expected {form}")))
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn expected(size: usize) -> String {
    match size {
        1 | 2 | 4 | 8 => format!("expected a number of {size} bytes, or fewer characters in double quotes"),
        _ => format!("expected fewer than {size} characters, since the variable has {size} bytes"),
    }
}

/// The bytes of a variable of that size: of a number, or of text with zeroes behind it.
fn bytes_of(value: &str, size: usize) -> Option<Vec<u8>> {
    let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    if matches!(size, 1 | 2 | 4 | 8) && quoted.is_none() {
        let (number, bits) = (number(value)?, 8 * size as u32);
        let fits = -(1 << (bits - 1)) <= number && number < 1 << bits;
        return fits.then(|| number.to_le_bytes()[..size].to_vec());
    }
    // Room for the zero that ends it.
    let mut bytes = quoted.unwrap_or(value).as_bytes().to_vec();
    (bytes.len() < size).then(|| {
        bytes.resize(size, 0);
        bytes
    })
}

fn number(value: &str) -> Option<i128> {
    let (negative, digits) = value.strip_prefix('-').map_or((false, value), |digits| (true, digits));
    let number = match digits.strip_prefix("0x") {
        Some(digits) => i128::from(u64::from_str_radix(digits, 16).ok()?),
        None => match digits {
            "true" => 1,
            "false" => 0,
            _ => i128::from(digits.parse::<u64>().ok()?),
        },
    };
    Some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn values_are_numbers_that_fit_or_text_with_a_zero_behind_it() {
        assert_eq!(bytes_of("7", 4), Some(vec![7, 0, 0, 0]));
        assert_eq!(bytes_of("0x1ff", 2), Some(vec![0xff, 1]));
        assert_eq!(bytes_of("-1", 8), Some(vec![0xff; 8]));
        assert_eq!(bytes_of("18446744073709551615", 8), Some(vec![0xff; 8]));
        assert_eq!(bytes_of("true", 1), Some(vec![1]));
        for (value, size) in
            [("256", 1), ("-129", 1), ("0x10000", 2), ("-32769", 2), ("eth0", 8), ("\"abcd\"", 4), ("", 1)]
        {
            assert_eq!(bytes_of(value, size), None, "{value}");
        }
        assert_eq!(bytes_of("\"eth0\"", 8), Some(b"eth0\0\0\0\0".to_vec()));
        assert_eq!(bytes_of("eth0", 16).unwrap().len(), 16);
        assert_eq!(bytes_of("12", 3), Some(b"12\0".to_vec()));
        assert_eq!(bytes_of("", 3), Some(vec![0; 3]));
        assert_eq!(bytes_of("abc", 3), None);
    }
}
