//! Samples that programs output to arrays of perf events: counted, since the command shows no more of them.

use crate::failure::Failure;
use skep::{Module, PerfReader};

/// Room for samples, in bytes of each virtual CPU. They are taken after each packet.
const ROOM: u32 = 16 << 10;

/// The readers of a module's arrays of perf events, and what they have counted.
#[derive(Default)]
pub(crate) struct Samples {
    readers: Vec<(PerfReader, u64)>,
}

impl Samples {
    /// Opens all of them.
    pub(crate) fn open(module: &Module) -> Result<Self, Failure> {
        let kind = skep::abi::MapKind::PerfEventArray;
        let maps = module.maps().iter().filter(|map| map.kind() == kind);
        let readers = maps.map(|map| Ok((PerfReader::new(map, ROOM).map_err(skep::Error::from)?, 0)));
        Ok(Self { readers: readers.collect::<Result<_, Failure>>()? })
    }

    /// Takes what is there.
    pub(crate) fn take(&mut self) {
        for (reader, count) in &mut self.readers {
            *count += reader.for_each(|_, _| ()) as u64 + reader.lost();
        }
    }

    /// The number of samples that were output to a map, lost ones included; `None` for other kinds.
    pub(crate) fn count(&self, map: &str) -> Option<u64> {
        self.readers.iter().find(|(reader, _)| reader.map().name() == map).map(|(_, count)| *count)
    }
}
