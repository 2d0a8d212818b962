//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The address of all stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it is a group of stations, or all.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text is not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an Ethernet address, which looks like 02:00:00:00:00:01")]
pub struct NotMac(String);

impl FromStr for MacAddr {
    type Err = NotMac;

    fn from_str(text: &str) -> Result<Self, NotMac> {
        let not = || NotMac(text.to_owned());
        let mut address = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut address {
            let part =
                parts.next().filter(|part| part.len() == 2 && !part.starts_with('+')).ok_or_else(not)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| not())?;
        }
        if parts.next().is_some() { Err(not()) } else { Ok(Self(address)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_printed_as_they_are_read() {
        let address: MacAddr = "02:00:5e:10:00:fF".parse().unwrap();
        assert_eq!(address, MacAddr([2, 0, 0x5e, 0x10, 0, 0xff]));
        assert_eq!(address.to_string().parse(), Ok(address));
        assert!(!address.is_multicast() && MacAddr::BROADCAST.is_multicast());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "02:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02:00:00:00:00:0g", "02:00:00:00:00:+1"]
        {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
    }
}
