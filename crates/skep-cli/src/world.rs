//! `skep run --world`: a machine from a file, and the way of packets through it.

use crate::failure::Failure;
use skep::world::file::Described;
use skep::world::{DeviceId, Fate, Injector, Trace, World};
use skep::{Link, Packet, Program};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Options about the world.
#[derive(clap::Args)]
pub(crate) struct WorldArgs {
    /// Run in the machine that this TOML file describes: devices, routes, neighbours, sockets, a clock. Packets of a
    /// capture go their whole way through it, and the report says where they ended.
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
    /// The device that packets come in on, by name or index; the world's first one without it.
    #[arg(long, value_name = "DEVICE", requires = "world")]
    dev: Option<String>,
}

/// Sends packets into a device that has the program.
pub(crate) struct Way {
    world: World,
    injector: Injector,
    device: u32,
    trace: Trace,
    ends: BTreeMap<String, u64>,
    _links: Vec<Link>,
}

/// The world that a TOML file describes.
pub(crate) fn read(path: &Path) -> Result<World, Failure> {
    let refused = |error: String| Failure::Refused(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|source| Failure::Refused(format!("cannot read {}: {source}", path.display())))?;
    let Described { machine, clock, random, .. } =
        Described::parse(&text).map_err(|error| refused(error.to_string()))?;
    if machine.devices().next().is_none() {
        return Err(refused("it has no devices: add a [[device]] with a name".into()));
    }
    Ok(World::with(machine, clock, random))
}

impl WorldArgs {
    /// The world, if one is given.
    pub(crate) fn read(&self) -> Result<Option<World>, Failure> {
        self.world.as_deref().map(read).transpose()
    }

    /// The way of packets into the device; `None` for programs that no packet meets there.
    pub(crate) fn way(&self, world: &World, program: &Program) -> Result<Option<Way>, Failure> {
        let machine = world.machine();
        let device = match &self.dev {
            Some(dev) => match dev.parse::<u32>() {
                Ok(index) => index.index_in(&machine),
                Err(_) => dev.as_str().index_in(&machine),
            },
            None => Ok(machine.devices().next().map_or(0, |device| device.index)),
        };
        let device = device.map_err(|error| Failure::Refused(error.to_string()))?;
        let links = world.attach_incoming(program, device)?;
        if links.is_empty() {
            return Ok(None);
        }
        let (injector, world) = (world.injector(), world.clone());
        let (trace, ends) = (Trace::default(), BTreeMap::new());
        Ok(Some(Way { world, injector, device, trace, ends, _links: links }))
    }
}

impl Way {
    /// Sends a packet. Returns the program's verdict, if it met the program, and whether the packet arrived somewhere.
    pub(crate) fn send(&mut self, packet: &mut Packet) -> Result<(Option<u64>, bool), Failure> {
        self.injector.inject(self.device, packet, &mut self.trace)?;
        let machine = self.world.machine();
        let copies = self.trace.copies.iter().map(|copy| &copy.fate);
        for fate in std::iter::once(&self.trace.fate).chain(copies) {
            *self.ends.entry(fate.show(&machine)).or_default() += 1;
        }
        let verdict = self.trace.hops.first().map(|hop| hop.result.into());
        let arrived = matches!(
            self.trace.fate,
            Fate::Sent { .. } | Fate::Delivered { .. } | Fate::Received { .. } | Fate::Socket { .. }
        );
        Ok((verdict, arrived))
    }

    /// Where packets and their copies ended, the most frequent first.
    pub(crate) fn ends(self) -> Vec<(String, u64)> {
        let mut ends: Vec<_> = self.ends.into_iter().collect();
        ends.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ends
    }
}
