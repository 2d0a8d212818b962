//! Network devices.

use crate::mac::MacAddr;
use ipnet::IpNet;

/// A network device. Made by [`Device::new`], then given to [`crate::Machine::add_device`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// Its index, from 1; 0 lets the machine choose the next free one.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address. Default: `02:00:00:00:` and the index.
    pub mac: MacAddr,
    /// The largest packet that it sends, in bytes, without the Ethernet header. Default: 1500.
    pub mtu: u32,
    /// Whether it is up. Default: yes.
    pub up: bool,
    /// Whether packets that come in here may be forwarded. Default: yes.
    pub forwarding: bool,
    /// The other end of a pair, by index: what one end sends comes in at the other.
    pub peer: Option<u32>,
    /// The network namespace that it is in. Default: 0.
    pub namespace: u32,
    /// Its addresses with the networks that they are in.
    pub addresses: Vec<IpNet>,
}

impl Device {
    /// A device of that name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            index: 0,
            name: name.into(),
            mac: MacAddr::default(),
            mtu: 1500,
            up: true,
            forwarding: true,
            peer: None,
            namespace: 0,
            addresses: Vec::new(),
        }
    }

    /// The same with this index.
    #[must_use]
    pub const fn index(mut self, index: u32) -> Self {
        self.index = index;
        self
    }

    /// The same with this Ethernet address.
    #[must_use]
    pub const fn mac(mut self, mac: MacAddr) -> Self {
        self.mac = mac;
        self
    }

    /// The same with this MTU in bytes.
    #[must_use]
    pub const fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// The same with one more address and its network.
    #[must_use]
    pub fn address(mut self, address: IpNet) -> Self {
        self.addresses.push(address);
        self
    }

    /// The same in this network namespace.
    #[must_use]
    pub const fn namespace(mut self, namespace: u32) -> Self {
        self.namespace = namespace;
        self
    }
}
