//! Packet captures: reads pcap and pcapng, in microseconds or nanoseconds and either byte order; writes pcap.
//!
//! A capture is read as a stream: memory is bounded by its longest packet, not by its length. A truncated file
//! yields all whole packets and then an error that names the place.

mod ethernet;

use crate::object::is_stdin;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buffer size for one packet with its headers; grows up to [`BUFFER_MAX`].
const BUFFER: usize = 256 << 10;
/// The largest packet that is accepted, with its headers.
const BUFFER_MAX: usize = 16 << 20;

/// One packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
    /// Index of the interface that captured it (0 in pcap).
    pub(crate) interface: u32,
    /// The captured bytes, as an Ethernet frame.
    pub(crate) bytes: Vec<u8>,
}

/// Why a capture could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot open the capture {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("the capture {} is empty: expected a pcap or pcapng header", path.display())]
    Empty { path: PathBuf },
    #[error("{} is neither pcap nor pcapng", path.display())]
    Unrecognised { path: PathBuf },
    #[error("the capture {} cannot be read at packet {packet}: {what}", path.display())]
    Broken { path: PathBuf, packet: u64, what: String },
    #[error(
        "packet {packet} of {} has link type {link}; supported are Ethernet (1), raw IP (101, 228, 229) and Linux \
         cooked (113, 276)",
        path.display()
    )]
    UnknownLink { path: PathBuf, packet: u64, link: i32 },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Reader of a capture.
pub(crate) struct Reader {
    path: PathBuf,
    reader: Box<dyn PcapReaderIterator + Send>,
    read: Arc<AtomicU64>,
    size: u64,
    packets: u64,
    interfaces: Vec<Interface>,
}

/// Clock and link type of a capturing interface.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Ticks in a second.
    resolution: u64,
    /// Seconds to add to its time stamps.
    offset: i64,
}

impl Reader {
    /// Opens a capture and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let open = |source| Error::Open { path: path.to_owned(), source };
        let (file, size): (Box<dyn Read + Send>, u64) = if is_stdin(path) {
            (Box::new(io::stdin()), 0)
        } else {
            let file = File::open(path).map_err(open)?;
            let size = file.metadata().map_err(open)?.len();
            (Box::new(file), size)
        };
        let read = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, read: Arc::clone(&read) };
        let reader = pcap_parser::create_reader(BUFFER, counted).map_err(|error| match error {
            PcapError::Eof => Error::Empty { path: path.to_owned() },
            PcapError::ReadError => open(io::Error::other("reading failed")),
            PcapError::Incomplete(_) if size > 0 => {
                let what = "the file header is truncated".into();
                Error::Broken { path: path.to_owned(), packet: 1, what }
            }
            _ => Error::Unrecognised { path: path.to_owned() },
        })?;
        Ok(Self { path: path.to_owned(), reader, read, size, packets: 0, interfaces: Vec::new() })
    }

    /// Size of the file in bytes, 0 for a pipe.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes read from the file so far.
    pub(crate) fn position(&self) -> u64 {
        // Relaxed: only the reading thread uses the counter.
        self.read.load(Ordering::Relaxed)
    }

    /// Returns the next packet.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            match self.reader.next() {
                Ok((consumed, block)) => {
                    let taken = take(&mut self.interfaces, &block);
                    let frame = taken.map_err(|problem| problem.at(&self.path, self.packets + 1));
                    self.reader.consume(consumed);
                    if let Some(frame) = frame? {
                        self.packets += 1;
                        return Ok(Some(frame));
                    }
                }
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::Incomplete(_)) => {
                    let before = self.position();
                    let refilled = self.reader.refill();
                    let full = matches!(refilled, Err(PcapError::BufferTooSmall));
                    if refilled.is_err() && !full {
                        return Err(self.broken("reading failed"));
                    }
                    if !full && self.position() == before && self.reader.data().is_empty() {
                        return Ok(None);
                    }
                    if full || self.position() == before {
                        self.grow_or_break(full)?;
                    }
                }
                Err(PcapError::BufferTooSmall) => self.grow_or_break(true)?,
                Err(PcapError::UnexpectedEof) => {
                    return Err(self.broken("the file ends before the packet does"));
                }
                Err(PcapError::ReadError) => return Err(self.broken("reading failed")),
                Err(_) => return Err(self.broken("its headers are invalid")),
            }
        }
    }

    fn grow_or_break(&mut self, full: bool) -> Result<(), Error> {
        if !full {
            return Err(self.broken("the file ends before the packet does"));
        }
        let size = self.reader.data().len().max(BUFFER) * 2;
        if size > BUFFER_MAX || !self.reader.grow(size) {
            return Err(self.broken("its length exceeds 16 MiB"));
        }
        match self.reader.refill() {
            Ok(()) => Ok(()),
            Err(_) => Err(self.broken("reading failed")),
        }
    }

    fn broken(&self, what: &str) -> Error {
        Error::Broken { path: self.path.clone(), packet: self.packets + 1, what: what.into() }
    }
}

/// What is wrong with a block.
enum Problem {
    Link(i32),
    Invalid(&'static str),
}

impl Problem {
    fn at(self, path: &Path, packet: u64) -> Error {
        let path = path.to_owned();
        match self {
            Self::Link(link) => Error::UnknownLink { path, packet, link },
            Self::Invalid(what) => Error::Broken { path, packet, what: what.into() },
        }
    }
}

/// Records an interface, or returns the packet if the block holds one.
fn take(interfaces: &mut Vec<Interface>, block: &PcapBlockOwned<'_>) -> Result<Option<Frame>, Problem> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            interfaces.push(Interface { link: header.network, resolution, offset: 0 });
            Ok(None)
        }
        PcapBlockOwned::Legacy(packet) => {
            let interface = interface(interfaces, 0)?;
            let ticks = u64::from(packet.ts_sec) * interface.resolution + u64::from(packet.ts_usec);
            frame(interface, 0, ticks, packet.data, packet.caplen)
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            Ok(None)
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            let resolution = ticks_per_second(description.if_tsresol)
                .ok_or(Problem::Invalid("the time stamp resolution of its interface is invalid"))?;
            interfaces.push(Interface {
                link: description.linktype,
                resolution,
                offset: description.ts_offset(),
            });
            Ok(None)
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            frame(interface(interfaces, packet.if_id)?, packet.if_id, ticks, packet.data, packet.caplen)
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            let captured = packet.origlen.min(packet.data.len() as u32);
            frame(interface(interfaces, 0)?, 0, 0, packet.data, captured)
        }
        PcapBlockOwned::NG(_) => Ok(None),
    }
}

/// Decodes the option `if_tsresol`: a negative power of two if its highest bit is set, otherwise of ten.
fn ticks_per_second(resolution: u8) -> Option<u64> {
    let exponent = u32::from(resolution & 0x7f);
    let base: u64 = if resolution & 0x80 != 0 { 2 } else { 10 };
    base.checked_pow(exponent)
}

fn interface(interfaces: &[Interface], id: u32) -> Result<Interface, Problem> {
    interfaces.get(id as usize).copied().ok_or(Problem::Invalid("its interface has no description"))
}

fn frame(
    interface: Interface,
    id: u32,
    ticks: u64,
    data: &[u8],
    captured: u32,
) -> Result<Option<Frame>, Problem> {
    let bytes =
        data.get(..captured as usize).ok_or(Problem::Invalid("its captured length exceeds its block"))?;
    let bytes = ethernet::frame(interface.link, bytes).map_err(|failure| match failure {
        ethernet::Failure::Link => Problem::Link(interface.link.0),
        ethernet::Failure::Frame(what) => Problem::Invalid(what),
    })?;
    let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(interface.resolution.max(1));
    let time = (nanoseconds as u64).wrapping_add_signed(interface.offset.wrapping_mul(1_000_000_000));
    Ok(Some(Frame { time, interface: id, bytes: bytes.into_owned() }))
}

/// Counts the bytes read from a file.
struct Counted {
    file: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        // Relaxed: see `Reader::position`.
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Writer of a capture: pcap, nanoseconds, native byte order, Ethernet.
pub(crate) struct Writer {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Writer {
    /// Creates the file and writes its header.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Write { path: path.to_owned(), source };
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        let mut header = Vec::with_capacity(24);
        header.extend(0xa1b2_3c4d_u32.to_ne_bytes());
        header.extend(2u16.to_ne_bytes());
        header.extend(4u16.to_ne_bytes());
        header.extend([0; 8]);
        header.extend(0x4_0000_u32.to_ne_bytes());
        header.extend(1u32.to_ne_bytes());
        out.write_all(&header).map_err(failed)?;
        Ok(Self { path: path.to_owned(), out })
    }

    /// Appends a packet.
    pub(crate) fn write(&mut self, time: u64, bytes: &[u8]) -> Result<(), Error> {
        let len = bytes.len() as u32;
        let mut header = [0; 16];
        header[..4].copy_from_slice(&((time / 1_000_000_000) as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&((time % 1_000_000_000) as u32).to_ne_bytes());
        header[8..12].copy_from_slice(&len.to_ne_bytes());
        header[12..].copy_from_slice(&len.to_ne_bytes());
        let written = self.out.write_all(&header).and_then(|()| self.out.write_all(bytes));
        written.map_err(|source| Error::Write { path: self.path.clone(), source })
    }

    /// Flushes buffered data.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.out.flush().map_err(|source| Error::Write { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/captures");

    fn read(path: &Path) -> Result<Vec<Frame>, Error> {
        let mut reader = Reader::open(path)?;
        let mut frames = Vec::new();
        while let Some(frame) = reader.next()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("skep-capture-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn every_format_and_byte_order_gives_the_same_packets() {
        let captures = Path::new(CAPTURES);
        let reference = read(&captures.join("tiny-ns.pcap")).unwrap();
        assert!(reference.len() >= 10);
        for name in ["tiny-be.pcap", "tiny.pcapng", "tiny-be.pcapng"] {
            let frames = read(&captures.join(name)).unwrap();
            assert_eq!(frames.len(), reference.len(), "{name}");
            for (frame, expected) in frames.iter().zip(&reference) {
                assert_eq!(frame.bytes, expected.bytes, "{name}");
                assert_eq!(frame.time / 1000, expected.time / 1000, "{name}: same microsecond");
            }
        }
    }

    #[test]
    fn clocks_tick_in_powers_of_ten_or_two() {
        assert_eq!(ticks_per_second(6), Some(1_000_000));
        assert_eq!(ticks_per_second(0x80 | 20), Some(1 << 20));
        assert_eq!(ticks_per_second(0x80 | 63), Some(1 << 63));
        assert_eq!((ticks_per_second(20), ticks_per_second(0x80 | 64)), (None, None));
    }

    #[test]
    fn written_captures_read_back() {
        let path = scratch("roundtrip", b"");
        let frames: Vec<Frame> = (0..5u64)
            .map(|i| Frame {
                time: 1_700_000_000_123_456_789 + i,
                interface: 0,
                bytes: vec![i as u8; 60 + i as usize],
            })
            .collect();
        let mut writer = Writer::create(&path).unwrap();
        for frame in &frames {
            writer.write(frame.time, &frame.bytes).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(read(&path).unwrap(), frames);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn truncated_captures_give_whole_packets_then_an_error() {
        for name in ["tiny-ns.pcap", "tiny.pcapng"] {
            let whole = std::fs::read(Path::new(CAPTURES).join(name)).unwrap();
            for cut in (0..whole.len()).step_by(29) {
                let path = scratch("cut", &whole[..cut]);
                if let Err(error) = read(&path) {
                    let text = error.to_string();
                    assert!(
                        text.contains("cannot be read at packet")
                            || text.contains("empty")
                            || text.contains("neither"),
                        "{name} cut at {cut}: {text}"
                    );
                }
                std::fs::remove_file(path).unwrap();
            }
        }
    }

    #[test]
    fn files_that_are_no_captures_are_refused() {
        let empty = scratch("empty", b"");
        assert!(read(&empty).unwrap_err().to_string().contains("is empty"));
        let text = scratch("text", &b"this is no capture, but long enough to hold a header".repeat(4));
        assert!(read(&text).unwrap_err().to_string().contains("neither pcap nor pcapng"));
        assert!(read(Path::new("/no/such/file")).unwrap_err().to_string().contains("cannot open"));
        let mut wifi = std::fs::read(Path::new(CAPTURES).join("tiny-ns.pcap")).unwrap();
        wifi[20] = 105;
        let wifi = scratch("wifi", &wifi);
        assert!(read(&wifi).unwrap_err().to_string().contains("link type 105"));
        for path in [empty, text, wifi] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn frames_of_other_link_types_become_ethernet_frames() {
        // The layouts of the headers: https://www.tcpdump.org/linktypes.html
        let (four, six) = (&[0x45, 1, 2][..], &[0x60, 1][..]);
        let cooked = |len: u8| [&[0, 0, 0, 1, 0, len, 1, 2, 3, 4, 5, 6, 0, 0, 0x86, 0xdd], six].concat();
        let cooked2 =
            |len: u8| [&[0x08, 0, 0, 0, 0, 0, 0, 3, 0, 1, 4, len, 1, 2, 3, 4, 5, 6, 0, 0], four].concat();
        let ethernet = |source: [u8; 6], protocol: [u8; 2], rest: &[u8]| {
            [&[0; 6], &source[..], &protocol, rest].concat()
        };
        let (source, none) = ([1, 2, 3, 4, 5, 6], [0; 6]);
        for (link, bytes, expected) in [
            (1, four.to_vec(), Some(four.to_vec())),
            (101, four.to_vec(), Some(ethernet(none, [0x08, 0], four))),
            (101, six.to_vec(), Some(ethernet(none, [0x86, 0xdd], six))),
            (101, vec![0x15, 0], None),
            (101, vec![], None),
            (228, four.to_vec(), Some(ethernet(none, [0x08, 0], four))),
            (229, six.to_vec(), Some(ethernet(none, [0x86, 0xdd], six))),
            (113, cooked(6), Some(ethernet(source, [0x86, 0xdd], six))),
            (113, cooked(0), Some(ethernet(none, [0x86, 0xdd], six))),
            (113, cooked(255), Some(ethernet(none, [0x86, 0xdd], six))),
            (113, cooked(6)[..15].to_vec(), None),
            (276, cooked2(6), Some(ethernet(source, [0x08, 0], four))),
            (276, cooked2(255), Some(ethernet(none, [0x08, 0], four))),
            (276, cooked2(6)[..19].to_vec(), None),
        ] {
            let made = ethernet::frame(Linktype(link), &bytes).ok().map(std::borrow::Cow::into_owned);
            assert_eq!(made, expected, "link type {link}: {bytes:x?}");
        }
    }

    #[test]
    fn an_excessive_length_is_refused_without_allocation() {
        let mut huge = std::fs::read(Path::new(CAPTURES).join("tiny-ns.pcap")).unwrap();
        huge[24 + 8..24 + 16].fill(0x7f);
        let path = scratch("huge", &huge);
        assert!(read(&path).unwrap_err().to_string().contains("cannot be read at packet 1"));
        std::fs::remove_file(path).unwrap();
    }
}
