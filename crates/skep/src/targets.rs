//! Programs of redirection targets: what runs on a packet behind `bpf_redirect_map`.
//!
//! An element of a map of devices or CPUs has room for the number of a program. The runtime knows which program that
//! is, but does not keep it alive: a program may name the map that it is in, and would keep itself.

use crate::dispatch::Connected;
use crate::error::Error;
use crate::program::Program;
use crate::shared::Shared;
use skep_abi::MapKind;
use skep_maps::Map;
use std::fmt;
use std::sync::Arc;

/// The program of that number, if it still exists.
pub(crate) fn program(shared: &Arc<Shared>, number: u32) -> Option<Program> {
    let image: Arc<Connected> = shared.target_programs().known.get(&number)?.upgrade()?;
    Some(Program::of(image, shared))
}

/// A map of redirection targets: devices, CPUs, AF_XDP sockets. Cheap to clone; clones are the same map.
///
/// [`Map::update`] sets targets: for devices the value begins with the device's index, for CPUs with the length of the
/// queue, for sockets it is a number that the host chooses. This sets their programs.
#[derive(Clone)]
pub struct TargetMap {
    map: Arc<Map>,
}

impl TargetMap {
    /// The targets in a map; `None` if it is of another kind.
    pub fn new(map: &Arc<Map>) -> Option<Self> {
        map.holds_targets().then(|| Self { map: Arc::clone(map) })
    }

    /// Lets a program run on each packet that is redirected to this target: of section `xdp/devmap` before the device
    /// sends it, of section `xdp/cpumap` on the other CPU. It runs as long as the target stays, and as long as the host
    /// keeps the program: this map does not. After that, packets to the target are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::WrongAttachment`] for programs of other sections; those of [`Map::set_target_program`].
    pub fn set_program(&self, key: u32, program: &Program) -> Result<(), Error> {
        let section = if self.map.kind() == MapKind::Cpumap { "xdp/cpumap" } else { "xdp/devmap" };
        let kind = program.program_type();
        if !kind.sections.contains(&section) {
            let (expected, given) = (format!("programs of section {section}"), kind.sections.join(" or "));
            let given = format!("one of type {} ({given})", kind.name);
            return Err(Error::WrongAttachment { program: program.name().to_owned(), expected, given });
        }
        program.check_runs_alone()?;
        let shared = program.shared();
        let number = shared.add_target_program(program.image());
        self.map.set_target_program(key, number)?;
        Ok(())
    }

    /// The map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }
}

impl fmt::Debug for TargetMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TargetMap").field(&self.map.name()).finish()
    }
}
