//! Network devices.

use crate::mac::MacAddr;
use ipnet::IpNet;

/// What an end of a pair is that only programs connect (Linux's `netkit`): its programs decide about each packet that
/// it sends to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Netkit {
    /// Whether programs of both ends are attached to this one.
    pub primary: bool,
    /// What becomes of packets about which no program decides.
    pub policy: NetkitPolicy,
}

/// What becomes of packets about which no program decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NetkitPolicy {
    /// They pass.
    #[default]
    Pass,
    /// They are dropped.
    Blackhole,
}

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
    /// If only programs connect it to its peer.
    pub netkit: Option<Netkit>,
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
            netkit: None,
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

    /// The same as an end of a pair that only programs connect.
    #[must_use]
    pub const fn netkit(mut self, netkit: Netkit) -> Self {
        self.netkit = Some(netkit);
        self
    }

    /// The same in this network namespace.
    #[must_use]
    pub const fn namespace(mut self, namespace: u32) -> Self {
        self.namespace = namespace;
        self
    }
}
