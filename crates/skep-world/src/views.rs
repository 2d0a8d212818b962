//! The routing tables, arranged for look-ups: made once when routes or devices change, then asked for every packet.
//!
//! A look-up is about one table, as one namespace sees it, or as packets see it that leave by one device. Each of these
//! is a [`Table`]. Its values are the places of routes in the machine's list, plus one.

use crate::device::Device;
use crate::prefixes::{Prefix, Prefixes};
use crate::route::{Route, RouteKind, TABLE_LOCAL, TABLE_MAIN};
use ipnet::IpNet;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::OnceLock;

/// All views of a machine. Nothing is there when it is new; each part is made when it is needed first.
#[derive(Debug, Default)]
pub(crate) struct Views {
    namespaces: OnceLock<BTreeMap<u32, Tables>>,
    devices: OnceLock<BTreeMap<u32, Tables>>,
    own: OnceLock<Own>,
}

/// Who looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Viewer {
    /// A namespace, by its number.
    Namespace(u32),
    /// A packet that leaves by the device with this index.
    Device(u32),
}

/// What the views are of.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) devices: &'a BTreeMap<u32, Device>,
    pub(crate) routes: &'a [Route],
}

/// The tables that somebody sees.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    local: Table,
    main: Table,
    /// What the local table says, or else the main one.
    both: Table,
    others: BTreeMap<u32, Table>,
}

#[derive(Debug, Default)]
struct Table {
    v4: Prefixes<u32>,
    v6: Prefixes<u128>,
}

impl Table {
    #[inline]
    fn find<'a>(&self, routes: &'a [Route], address: IpAddr) -> Option<&'a Route> {
        let value = match address {
            IpAddr::V4(v4) => self.v4.find(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.find(v6.to_bits()),
        };
        routes.get((value as usize).checked_sub(1)?)
    }
}

impl Tables {
    /// The route to an address in one table.
    pub(crate) fn in_table<'a>(&self, routes: &'a [Route], table: u32, address: IpAddr) -> Option<&'a Route> {
        let table = match table {
            TABLE_LOCAL => &self.local,
            TABLE_MAIN => &self.main,
            other => self.others.get(&other)?,
        };
        table.find(routes, address)
    }

    /// The route to an address: in the local table, or else in the main one.
    #[inline]
    pub(crate) fn route<'a>(&self, routes: &'a [Route], address: IpAddr) -> Option<&'a Route> {
        self.both.find(routes, address)
    }
}

/// The addresses of devices.
#[derive(Debug)]
struct Own {
    by_namespace: HashSet<(u32, IpAddr)>,
    /// Whether the local table says of each that this machine receives it, as it does unless somebody changed it.
    all_listed: bool,
}

impl Views {
    /// Makes what is not made yet, so that no look-up has to.
    pub(crate) fn prepare(&self, given: Given<'_>) {
        let _ = (self.own(given), self.by_device(given));
    }

    /// The tables that somebody sees, if there are any. In each the longest prefix wins, then the lowest metric, then
    /// the route that was added first.
    #[inline]
    pub(crate) fn tables(&self, given: Given<'_>, viewer: Viewer) -> Option<&Tables> {
        match viewer {
            Viewer::Namespace(number) => self.by_namespace(given).get(&number),
            Viewer::Device(index) => self.by_device(given).get(&index),
        }
    }

    /// Whether a device of the namespace has this address.
    pub(crate) fn is_own(&self, given: Given<'_>, namespace: u32, address: IpAddr) -> bool {
        self.own(given).by_namespace.contains(&(namespace, address))
    }

    /// Whether a device of the namespace has this address, although the local table does not say that it is received.
    #[inline]
    pub(crate) fn is_unlisted(&self, given: Given<'_>, namespace: u32, address: IpAddr) -> bool {
        let own = self.own(given);
        !own.all_listed && own.by_namespace.contains(&(namespace, address))
    }

    #[inline]
    fn by_namespace(&self, given: Given<'_>) -> &BTreeMap<u32, Tables> {
        self.namespaces.get_or_init(|| {
            all_tables(given.routes, |route| given.devices.get(&route.device).map(|device| device.namespace))
        })
    }

    #[inline]
    fn by_device(&self, given: Given<'_>) -> &BTreeMap<u32, Tables> {
        self.devices.get_or_init(|| {
            all_tables(given.routes, |route| {
                given.devices.contains_key(&route.device).then_some(route.device)
            })
        })
    }

    #[inline]
    fn own(&self, given: Given<'_>) -> &Own {
        self.own.get_or_init(|| {
            let of = |device: &Device| {
                let namespace = device.namespace;
                device.addresses.iter().map(move |own| (namespace, own.addr())).collect::<Vec<_>>()
            };
            let by_namespace: HashSet<_> = given.devices.values().flat_map(of).collect();
            let is_listed = |(namespace, address): &(u32, IpAddr)| {
                let tables = self.tables(given, Viewer::Namespace(*namespace));
                let route = tables.and_then(|tables| tables.local.find(given.routes, *address));
                route.is_some_and(|route| route.kind == RouteKind::Local)
            };
            let all_listed = by_namespace.iter().all(is_listed);
            Own { by_namespace, all_listed }
        })
    }
}

/// What all see. `viewer` says who sees a route, if anybody does.
fn all_tables(routes: &[Route], viewer: impl Fn(&Route) -> Option<u32>) -> BTreeMap<u32, Tables> {
    #[derive(Default)]
    struct Drawn {
        v4: Vec<Prefix<u32>>,
        v6: Vec<Prefix<u128>>,
    }
    let mut drawn: BTreeMap<(u32, u32), Drawn> = BTreeMap::new();
    for (value, route) in (1..).zip(routes) {
        let Some(viewer) = viewer(route) else { continue };
        let (all, rank) = (drawn.entry((viewer, route.table)).or_default(), route.metric);
        match route.to {
            IpNet::V4(v4) => {
                let (first, last) = (v4.network().to_bits(), v4.broadcast().to_bits());
                all.v4.push(Prefix { first, last, rank, value });
            }
            IpNet::V6(v6) => {
                let (first, last) = (v6.network().to_bits(), v6.broadcast().to_bits());
                all.v6.push(Prefix { first, last, rank, value });
            }
        }
    }
    let mut all: BTreeMap<u32, Tables> = BTreeMap::new();
    for ((viewer, number), drawn) in drawn {
        let table = Table { v4: Prefixes::new(drawn.v4), v6: Prefixes::new(drawn.v6) };
        let tables = all.entry(viewer).or_default();
        match number {
            TABLE_LOCAL => tables.local = table,
            TABLE_MAIN => tables.main = table,
            _ => drop(tables.others.insert(number, table)),
        }
    }
    for tables in all.values_mut() {
        let (local, main) = (&tables.local, &tables.main);
        tables.both = Table { v4: local.v4.or(&main.v4), v6: local.v6.or(&main.v6) };
    }
    all
}
