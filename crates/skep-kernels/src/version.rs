//! Releases of Linux: the two numbers that say what a kernel has.

use std::fmt;
use std::str::FromStr;

/// A release of Linux: 6.1 stands for 6.1.0 and all its stable updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u16,
    minor: u16,
}

/// The releases that the tables cover: major, first minor, last minor.
const KNOWN: [(u16, u16, u16); 3] = [(5, 10, 19), (6, 0, 19), (7, 0, 3)];

impl Version {
    /// A release; also one that the tables do not cover, for comparisons.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Whether the tables cover it.
    pub fn is_known(self) -> bool {
        KNOWN.iter().any(|&(major, first, last)| self.major == major && (first..=last).contains(&self.minor))
    }

    /// Every release that the tables cover, ascending.
    pub fn known() -> impl Iterator<Item = Self> {
        KNOWN
            .into_iter()
            .flat_map(|(major, first, last)| (first..=last).map(move |minor| Self { major, minor }))
    }

    /// The two numbers alone, without the check that the tables cover the release.
    pub(crate) fn numbers(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (major, rest) = text.split_once('.')?;
        let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let follows = rest[end..].chars().next();
        if follows.is_some_and(|character| !matches!(character, '.' | '-' | '+' | '~')) {
            return None;
        }
        Some(Self { major: major.parse().ok()?, minor: rest[..end].parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{}", self.major, self.minor);
        f.pad(&text)
    }
}

/// Why a text names no release that the tables cover.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// It is not two numbers.
    #[error("`{text}` is no release of Linux; write two numbers, such as 6.1; known are {}", Ranges)]
    Malformed {
        /// The text.
        text: String,
    },
    /// The tables do not cover it.
    #[error("nothing is known about Linux {version}; known are {}", Ranges)]
    Unknown {
        /// The release.
        version: Version,
    },
}

impl FromStr for Version {
    type Err = VersionError;

    /// Reads `6.1`, `v6.1`, and what `uname -r` prints (`6.1.0-50-amd64`): only the first two numbers count.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let version = Self::numbers(text).ok_or_else(|| VersionError::Malformed { text: text.to_owned() })?;
        if version.is_known() { Ok(version) } else { Err(VersionError::Unknown { version }) }
    }
}

/// Displays the releases that the tables cover.
struct Ranges;

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = KNOWN.map(|(major, first, last)| format!("{major}.{first} to {major}.{last}"));
        f.write_str(&ranges.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_numbers_name_a_release() {
        for text in ["6.1", "v6.1", "6.1.176", "6.1.0-50-amd64", "6.1-rc3", "6.1+x"] {
            assert_eq!(text.parse(), Ok(Version::new(6, 1)), "{text}");
        }
        assert!(Version::new(5, 10) < Version::new(6, 1));
        assert_eq!(Version::known().count(), 34);
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        let said = |text: &str| text.parse::<Version>().expect_err("unknown").to_string();
        assert_eq!(
            said("4.2"),
            "nothing is known about Linux 4.2; known are 5.10 to 5.19, 6.0 to 6.19, 7.0 to 7.3"
        );
        for text in ["6.x", "", "6", "six.one", "6.1x", "-6.1", "6.99999999", "6."] {
            assert!(said(text).starts_with(&format!("`{text}` is no release")), "{}", said(text));
        }
    }
}
