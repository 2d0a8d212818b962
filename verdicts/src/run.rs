//! Runs of programs: a packet, fields of its context, and what Linux's BPF_PROG_TEST_RUN answered.

use std::fmt::Write;
use std::net::IpAddr;

use crate::entry::Entry;
use crate::request::hex;
use crate::section::Section;

/// The length of `struct __sk_buff`.
const CONTEXT: usize = 192;
/// The length of an Ethernet header.
const ETHERNET: usize = 14;
/// The number of Linux's type of XDP programs.
const XDP: u32 = 6;
/// Numbers of the types whose context is a `__sk_buff` that a run can be given.
const SKB: [u32; 7] = [1, 3, 4, 8, 10, 11, 12];

/// Fields of `struct __sk_buff` that a run is given and gives back: name, offset, bytes.
pub const FIELDS: [(&str, usize, usize); 11] = [
    ("mark", 8, 4),
    ("priority", 32, 4),
    ("cb0", 48, 4),
    ("cb1", 52, 4),
    ("cb2", 56, 4),
    ("cb3", 60, 4),
    ("cb4", 64, 4),
    ("tstamp", 152, 8),
    ("gso_segs", 164, 4),
    ("gso_size", 176, 4),
    ("hwtstamp", 184, 8),
];

/// Values of [`FIELDS`], in their order.
pub type Fields = [u64; FIELDS.len()];

/// What a program is run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The packet with its Ethernet header.
    pub packet: Vec<u8>,
    /// The context before the run.
    pub fields: Fields,
    /// The context of a type that has no such fields, as Linux takes it: arguments, the caller's bytes, a structure.
    pub bytes: Vec<u8>,
}

/// What a run left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAnswer {
    /// The program's result.
    pub result: u32,
    /// The packet afterwards.
    pub packet: Vec<u8>,
    /// The context afterwards.
    pub fields: Fields,
}

impl Run {
    /// The run that an entry describes, if it describes one.
    ///
    /// # Errors
    ///
    /// The packet or a field has an error, or Linux cannot run such an entry alone.
    pub fn of(entry: &Entry) -> Result<Option<Self>, String> {
        let Some(text) = &entry.packet else { return Ok(None) };
        let mut run = Self { packet: packet(text)?, fields: Fields::default(), bytes: Vec::new() };
        if !is_skb(entry) && !is_xdp(entry) {
            run.bytes = from_hex(&entry.context)?;
            return Ok(Some(run));
        }
        for word in entry.context.split_whitespace() {
            let (name, value) =
                word.split_once('=').ok_or_else(|| format!("{word}: expected FIELD=NUMBER"))?;
            let field = FIELDS.iter().position(|(field, ..)| *field == name);
            let field = field.ok_or_else(|| format!("{name} is not a field that a run can be given"))?;
            run.fields[field] = value.parse().map_err(|_| format!("{value} is not a number"))?;
        }
        match is_xdp(entry) && !entry.context.is_empty() {
            true => Err("XDP programs have no such fields".to_owned()),
            false => Ok(Some(run)),
        }
    }

    /// The words after `r` in a request.
    pub(crate) fn words(&self, entry: &Entry) -> String {
        if !is_skb(entry) {
            let or_none = |bytes: &[u8]| if bytes.is_empty() { "-".to_owned() } else { hex(bytes) };
            return format!("{} {}", or_none(&self.packet), or_none(&self.bytes));
        }
        let mut context = [0; CONTEXT];
        for ((_, at, bytes), value) in FIELDS.iter().zip(self.fields) {
            context[*at..at + bytes].copy_from_slice(&value.to_le_bytes()[..*bytes]);
        }
        format!("{} {}", hex(&self.packet), hex(&context))
    }

    /// An answer as a file has it: the result, the fields that the run changed, and the packet if it changed that.
    pub fn text(&self, entry: &Entry, answer: &RunAnswer) -> String {
        let mut text = format!("{}", answer.result);
        for (index, (name, ..)) in FIELDS.iter().enumerate() {
            if answer.fields[index] != self.fields[index] {
                // Writing to a string cannot fail.
                let _ = write!(text, " {name}={}", answer.fields[index]);
            }
        }
        // Linux gives programs that begin at the network header back without the Ethernet header.
        let link = if !is_skb(entry) || has_link(entry) { 0 } else { ETHERNET };
        let from = |packet: &[u8]| packet.get(link..).unwrap_or(&[]).to_vec();
        if from(&answer.packet) != from(&self.packet) {
            let _ = write!(text, " packet={}", hex(&from(&answer.packet)));
        }
        text
    }

    /// The words of a guest's answer (`ERRNO RESULT PACKET CONTEXT`) as a file has them.
    ///
    /// # Errors
    ///
    /// The guest's words.
    pub fn recorded(&self, entry: &Entry, words: &str) -> Result<String, String> {
        let parts: Vec<&str> = words.split(' ').collect();
        let [errno, result, packet, context] = parts[..] else {
            return Err(format!("not an answer: {words}"));
        };
        if errno != "0" {
            return Ok(format!("errno {errno}"));
        }
        let mut fields = self.fields;
        let context = from_hex(context)?;
        if is_skb(entry) && !context.is_empty() {
            for ((_, at, bytes), field) in FIELDS.iter().zip(&mut fields) {
                let mut value = [0; 8];
                value[..*bytes].copy_from_slice(context.get(*at..at + bytes).ok_or("a short context")?);
                *field = u64::from_le_bytes(value);
            }
        }
        let result = result.parse().map_err(|_| format!("not an answer: {words}"))?;
        Ok(self.text(entry, &RunAnswer { result, packet: from_hex(packet)?, fields }))
    }
}

fn is_xdp(entry: &Entry) -> bool {
    Section::of(&entry.section).is_some_and(|section| section.kind == XDP)
}

fn is_skb(entry: &Entry) -> bool {
    Section::of(&entry.section).is_some_and(|section| SKB.contains(&section.kind))
}

/// Whether the packet of such a program begins with its Ethernet header: XDP and traffic control.
fn has_link(entry: &Entry) -> bool {
    Section::of(&entry.section).is_some_and(|section| [3, 4, XDP].contains(&section.kind))
}

/// Bytes in hexadecimal, with spaces; or `udp4`, `udp6`, `vlan4` and so many bytes of payload.
fn packet(text: &str) -> Result<Vec<u8>, String> {
    let mut words = text.split_whitespace();
    let kind = words.next().unwrap_or("");
    if !["udp4", "udp6", "vlan4"].contains(&kind) {
        return from_hex(&text.replace(' ', ""));
    }
    let length: usize = words.next().unwrap_or("0").parse().map_err(|_| format!("{text}: no length"))?;
    let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
    let ends: [IpAddr; 2] = match kind {
        "udp6" => [[0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 2].into()],
        _ => [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
    };
    let datagram = skep_packets::udp((ends[0], 1000), (ends[1], 53), &payload);
    let (kind_number, inner) = match ends {
        [IpAddr::V4(from), IpAddr::V4(to)] => {
            let header = skep_packets::Ipv4 { protocol: 17, ttl: 64, id: 1, fragment: 0, options: &[] };
            (0x0800, skep_packets::ipv4(from, to, header, &datagram))
        }
        [IpAddr::V6(from), IpAddr::V6(to)] => (0x86dd, skep_packets::ipv6(from, to, 17, 64, &datagram)),
        _ => return Err("addresses of two families".to_owned()),
    };
    let tags: &[(u16, u16)] = if kind == "vlan4" { &[(0x8100, 5)] } else { &[] };
    Ok(skep_packets::ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], tags, kind_number, &inner))
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("{text}: not bytes in hexadecimal");
    if text == "-" {
        return Ok(Vec::new());
    }
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err(bad());
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| bad()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries;

    #[test]
    fn an_answer_names_what_the_run_changed() {
        let text = "== a\ntype: tc\npacket: 000102030405060708090a0b0c0d\ncontext: mark=3\ninsns:\nexit\n";
        let entry = &entries(text).unwrap()[0];
        let run = Run::of(entry).unwrap().unwrap();
        let words = run.words(entry);
        let (packet, context) = words.split_once(' ').unwrap();
        assert_eq!(&context[16..18], "03");
        assert_eq!(run.recorded(entry, &format!("0 7 {packet} {context}")), Ok("7".to_owned()));
        let context = context.replacen("03", "09", 1);
        assert_eq!(run.recorded(entry, &format!("0 7 ff {context}")), Ok("7 mark=9 packet=ff".to_owned()));
        assert_eq!(run.recorded(entry, "22 0 - -"), Ok("errno 22".to_owned()));
        assert!(run.recorded(entry, "22").is_err() && run.recorded(entry, "0 0 f -").is_err());
    }

    #[test]
    fn wrong_packets_and_fields_are_refused() {
        let of = |lines: &str| Run::of(&entries(&format!("== a\n{lines}\ninsns:\nexit\n")).unwrap()[0]);
        assert_eq!(of("type: tc"), Ok(None));
        assert!(of("type: tc\npacket: 0g").is_err());
        assert!(of("type: tc\npacket: udp4 x").is_err());
        assert!(of("type: tc\npacket: udp4 1\ncontext: len=3").is_err());
        assert!(of("type: xdp\npacket: udp4 1\ncontext: mark=3").is_err());
        assert_eq!(of("type: xdp\npacket: udp6 100").unwrap().unwrap().packet.len(), 14 + 40 + 8 + 100);
    }
}
