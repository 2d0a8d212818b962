//! Mappings of processes, as `/proc/PROCESS/maps` lists them.

use crate::table::FileId;

/// A mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Its first address.
    pub(crate) start: u64,
    /// Where it begins in the file.
    pub(crate) offset: u64,
    pub(crate) file: FileId,
    /// Whether the process writes to the file by it.
    pub(crate) writes: bool,
}

impl Mapping {
    /// A line of the list: `7f0000000000-7f0000001000 rw-s 00000000 00:01 1025   /memfd:bpf-map (deleted)`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
        let (device, inode) = (words.next()?, words.next()?);
        let (major, minor) = device.split_once(':')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let device = rustix::fs::makedev(number(major)? as u32, number(minor)? as u32);
        Some(Self {
            start: number(range.split_once('-')?.0)?,
            offset: number(offset)?,
            file: (device, inode.parse().ok()?),
            writes: rights.as_bytes().get(1) == Some(&b'w') && rights.ends_with('s'),
        })
    }
}

/// Whether another process than this one can write to a file through a mapping. A process that hides its mappings from
/// its own user is not seen.
pub(crate) fn is_written(file: FileId) -> bool {
    let own = std::process::id();
    let Ok(all) = std::fs::read_dir("/proc") else { return false };
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|number| *number != own).any(|number| {
        let maps = std::fs::read_to_string(format!("/proc/{number}/maps")).unwrap_or_default();
        maps.lines().filter_map(Mapping::parse).any(|mapping| mapping.writes && mapping.file == file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_where_what_and_how_something_is_mapped() {
        let file = (rustix::fs::makedev(0xfd, 1), 1025);
        for (rights, writes) in [("rw-s", true), ("r--s", false), ("rw-p", false), ("-w-s", true)] {
            let line = format!("7f0000000000-7f0000001000 {rights} 00002000 fd:01 1025      /a b");
            let mapping = Mapping { start: 0x7f00_0000_0000, offset: 0x2000, file, writes };
            assert_eq!(Mapping::parse(&line), Some(mapping), "{rights}");
        }
        for line in ["", "7f-80 rw-s 0 fd:01", "x-80 rw-s 0 fd:01 1", "7f-80 rw-s 0 fd01 1"] {
            assert_eq!(Mapping::parse(line), None, "{line}");
        }
    }
}
