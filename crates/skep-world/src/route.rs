//! Routes.

use ipnet::IpNet;
use std::net::IpAddr;

/// The number of the main routing table.
pub const TABLE_MAIN: u32 = 254;
/// The number of the table of the machine's own addresses.
pub const TABLE_LOCAL: u32 = 255;

/// What happens to packets that a route takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RouteKind {
    /// They are sent.
    #[default]
    Unicast,
    /// The machine itself receives them.
    Local,
    /// All stations of a network receive them, this machine among them.
    Broadcast,
    /// They are dropped.
    Blackhole,
    /// They are dropped, and the sender is told that the destination cannot be reached.
    Unreachable,
    /// They are dropped, and the sender is told that this is forbidden.
    Prohibit,
}

/// A route. Made by [`Route::new`], then given to [`crate::Machine::add_route`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The destinations that it is for.
    pub to: IpNet,
    /// The device that sends the packets.
    pub device: u32,
    /// The next hop; `None` if destinations are reached directly.
    pub via: Option<IpAddr>,
    /// The preferred source address.
    pub source: Option<IpAddr>,
    /// Of routes with equally long prefixes the lowest metric wins. Default: 0.
    pub metric: u32,
    /// The largest packet, in bytes, if it is not the device's MTU.
    pub mtu: Option<u32>,
    /// What happens to the packets.
    pub kind: RouteKind,
    /// The routing table. Default: [`TABLE_MAIN`].
    pub table: u32,
}

impl Route {
    /// A route to these destinations through that device.
    pub const fn new(to: IpNet, device: u32) -> Self {
        Self {
            to,
            device,
            via: None,
            source: None,
            metric: 0,
            mtu: None,
            kind: RouteKind::Unicast,
            table: TABLE_MAIN,
        }
    }

    /// The same with this next hop.
    #[must_use]
    pub const fn via(mut self, via: IpAddr) -> Self {
        self.via = Some(via);
        self
    }

    /// The same with this preferred source address.
    #[must_use]
    pub const fn source(mut self, source: IpAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// The same with this metric.
    #[must_use]
    pub const fn metric(mut self, metric: u32) -> Self {
        self.metric = metric;
        self
    }

    /// The same with this MTU in bytes.
    #[must_use]
    pub const fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = Some(mtu);
        self
    }

    /// The same of this kind.
    #[must_use]
    pub const fn kind(mut self, kind: RouteKind) -> Self {
        self.kind = kind;
        self
    }

    /// The same in this table.
    #[must_use]
    pub const fn table(mut self, table: u32) -> Self {
        self.table = table;
        self
    }
}
