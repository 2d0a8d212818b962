//! Readers of the two file formats, written from the specifications and independent of our writers.

use std::path::Path;

/// A line of a perf map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) start: usize,
    pub(crate) size: usize,
    pub(crate) name: String,
}

/// "START SIZE symbolname, START and SIZE are hex numbers without 0x, symbolname is the rest of the line."
pub(crate) fn perf_map(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is not whole: {text:?}");
    let parse = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mut number = || usize::from_str_radix(words.next().unwrap(), 16).unwrap();
        Line { start: number(), size: number(), name: words.next().unwrap().to_owned() }
    };
    text.lines().map(parse).collect()
}

#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) machine: u32,
    pub(crate) process: u32,
    pub(crate) timestamp: u64,
    pub(crate) records: Vec<Record>,
}

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) timestamp: u64,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Load { process: u32, thread: u32, address: u64, index: u64, name: String, code: Vec<u8> },
    Close,
}

/// Reads a jitdump to its last byte.
pub(crate) fn jitdump(path: &Path) -> Dump {
    let bytes = std::fs::read(path).unwrap();
    let mut at = 0;
    let mut header = Words { bytes: &bytes, at: &mut at };
    assert_eq!(header.u32(), u32::from_be_bytes(*b"JiTD"));
    assert_eq!(header.u32(), 1, "version");
    assert_eq!(header.u32(), 40, "size of the header");
    let (machine, padding, process) = (header.u32(), header.u32(), header.u32());
    let (timestamp, flags) = (header.u64(), header.u64());
    assert_eq!((padding, flags), (0, 0));

    let mut records = Vec::new();
    while at < bytes.len() {
        let start = at;
        let mut words = Words { bytes: &bytes, at: &mut at };
        let (id, size, timestamp) = (words.u32(), words.u32() as usize, words.u64());
        let what = match id {
            0 => {
                let (process, thread) = (words.u32(), words.u32());
                let (vma, address, len, index) = (words.u64(), words.u64(), words.u64(), words.u64());
                assert_eq!(vma, address);
                let name_len = bytes[at..].iter().position(|&byte| byte == 0).unwrap();
                let name = String::from_utf8(bytes[at..at + name_len].to_vec()).unwrap();
                let code = at + name_len + 1;
                at = code + len as usize;
                What::Load { process, thread, address, index, name, code: bytes[code..at].to_vec() }
            }
            3 => What::Close,
            other => panic!("record {other} at {start}"),
        };
        assert_eq!(at - start, size, "the record at {start} has another size than it says");
        records.push(Record { timestamp, what });
    }
    Dump { machine, process, timestamp, records }
}

struct Words<'a> {
    bytes: &'a [u8],
    at: &'a mut usize,
}

impl Words<'_> {
    fn u32(&mut self) -> u32 {
        *self.at += 4;
        u32::from_ne_bytes(self.bytes[*self.at - 4..*self.at].try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        *self.at += 8;
        u64::from_ne_bytes(self.bytes[*self.at - 8..*self.at].try_into().unwrap())
    }
}
