//! Network interfaces of this process's network namespace, by name.

use crate::error::{Error, classify};
use crate::sys;
use std::os::fd::AsFd;

/// Hardware types whose frames have an Ethernet header: Ethernet itself, and the loopback.
const ETHERNET: [u16; 2] = [1, 772];

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index, which programs see as `ingress_ifindex` and redirect to.
    pub index: u32,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is a loopback: frames that go out come in.
    pub loopback: bool,
    /// `ARPHRD_...` of Linux; 1 is Ethernet.
    pub hardware: u16,
}

/// All interfaces of this network namespace.
///
/// # Errors
///
/// [`Error::System`].
pub fn interfaces() -> Result<Vec<Interface>, Error> {
    let listed = sys::names();
    let listed =
        listed.map_err(|source| Error::System { name: "interfaces".into(), doing: "listing", source })?;
    // An interface may disappear between the calls.
    Ok(listed.into_iter().filter_map(|(name, index)| describe(name, index).ok()).collect())
}

impl Interface {
    /// The interface of that name.
    ///
    /// # Errors
    ///
    /// [`Error::NoInterface`], which lists those that exist, and [`Error::System`].
    pub fn named(name: &str) -> Result<Self, Error> {
        let all = interfaces()?;
        let known = || all.iter().map(|interface| interface.name.clone()).collect();
        let found = all.iter().find(|interface| interface.name == name).cloned();
        found.ok_or_else(|| Error::NoInterface { name: name.to_owned(), known: known() })
    }

    /// Refuses interfaces that are down, and those without Ethernet frames.
    pub(crate) fn usable(self) -> Result<Self, Error> {
        if !ETHERNET.contains(&self.hardware) {
            return Err(Error::NotEthernet { name: self.name, kind: self.hardware });
        }
        if self.up { Ok(self) } else { Err(Error::Down { name: self.name }) }
    }
}

fn describe(name: String, index: u32) -> Result<Interface, Error> {
    let asked = sys::control().and_then(|control| {
        Ok((sys::flags(control.as_fd(), &name)?, sys::hardware(control.as_fd(), &name)?))
    });
    let (flags, hardware) =
        asked.map_err(|source| classify(&name, "asking about", "CAP_NET_ADMIN", source))?;
    let (up, loopback) = (flags & sys::UP != 0, flags & sys::LOOPBACK != 0);
    Ok(Interface { name, index, up, loopback, hardware })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_the_interfaces_that_exist() {
        let Err(Error::NoInterface { known, .. }) = Interface::named("no such name") else { panic!("found") };
        // Other interfaces may come and go during the test; the loopback is there or not.
        let has_loopback = interfaces().unwrap().iter().any(|interface| interface.name == "lo");
        assert_eq!(known.contains(&"lo".to_owned()), has_loopback, "{known:?}");
        if let Ok(lo) = Interface::named("lo") {
            assert!(lo.loopback);
        }
    }

    #[test]
    fn interfaces_that_are_down_or_carry_other_frames_are_refused() {
        let interface = Interface { name: "x".into(), index: 1, up: true, loopback: false, hardware: 1 };
        assert!(interface.clone().usable().is_ok());
        let down = Interface { up: false, ..interface.clone() }.usable();
        assert!(matches!(down, Err(Error::Down { .. })));
        let tunnel = Interface { hardware: 65534, ..interface }.usable();
        assert!(matches!(tunnel, Err(Error::NotEthernet { kind: 65534, .. })));
    }
}
