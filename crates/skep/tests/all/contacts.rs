//! An example that reports to the host through ring buffers, run over the committed capture: in both engines, the
//! records match the packets.

use skep::{Engine, Module, Object, Packet, RingBuffer, Runtime};
use std::collections::BTreeSet;
use std::path::Path;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const TCP: u32 = 6;
const UDP: u32 = 17;
const PASS: u64 = 2;
const DROP: u64 = 1;

/// Source and destination address in network byte order, and the protocol, laid out as in the program.
type Pair = [u8; 12];

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Reads the packets of a little-endian pcap capture.
fn packets(capture: &[u8]) -> Vec<&[u8]> {
    let mut packets = Vec::new();
    let mut rest = &capture[24..];
    while let Some((head, behind)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let (packet, after) = behind.split_at(len);
        packets.push(packet);
        rest = after;
    }
    packets
}

fn pair(frame: &[u8]) -> Option<Pair> {
    if frame.len() < 34 || frame[12..14] != [8, 0] {
        return None;
    }
    let protocol = u32::from(frame[23]).to_ne_bytes();
    [&frame[26..34], &protocol].concat().try_into().ok()
}

fn load() -> (Runtime, Module) {
    let runtime = Runtime::new().unwrap();
    let module = runtime.load(&Object::open(examples().join("contacts.bpf.o")).unwrap()).unwrap();
    (runtime, module)
}

#[test]
fn every_new_pair_is_reported_once_on_its_protocols_ring() {
    let capture = std::fs::read(examples().join("traffic.pcap")).unwrap();
    let packets = packets(&capture);
    for engine in ENGINES {
        let (_runtime, module) = load();
        let contact = module.program("contact").unwrap();
        let rings = module.map_hash("rings").unwrap();
        assert_eq!((rings.len(), rings.keys().len()), (2, 2));
        let mut consumers = [TCP, UDP].map(|protocol| {
            let ring = rings.get(&protocol.to_ne_bytes()).unwrap();
            assert_eq!(ring.name(), if protocol == TCP { "tcp" } else { "udp" });
            (protocol, RingBuffer::new(&ring).unwrap())
        });
        let (mut told, mut sent, mut last) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for frame in &packets {
            assert_eq!(contact.run_with(engine, &mut Packet::new(frame)).unwrap(), PASS);
            if let Some(pair) = pair(frame)
                && sent.insert(pair)
            {
                last.push(pair);
            }
            for (protocol, consumer) in &mut consumers {
                while let Some(record) = consumer.next_record() {
                    assert_eq!(record.len(), 24);
                    assert_eq!(record[8..12], protocol.to_ne_bytes());
                    assert!(told.insert(Pair::try_from(&record[..12]).unwrap()), "told twice");
                }
            }
        }
        // The filter may take a new pair for a known one, at most 1 in 16. No record is wrong.
        assert!(told.is_subset(&sent));
        let audible: BTreeSet<_> = sent
            .iter()
            .filter(|pair| [TCP, UDP].map(u32::to_ne_bytes).contains(&pair[8..].try_into().unwrap()))
            .filter(|pair| pair[..4] != pair[4..8])
            .collect();
        assert!(
            audible.len() > 500 && told.len() * 16 >= audible.len() * 15,
            "{} of {}",
            told.len(),
            audible.len()
        );
        let unheard = module.variable("unheard").unwrap();
        let unheard = u64::from_ne_bytes(unheard.try_into().unwrap());
        assert!(unheard > 0, "pings have no ring");
        // The queue holds the latest pairs, oldest first.
        let latest = module.map("latest").unwrap();
        assert_eq!(latest.len(), 32);
        let order = |pair: &[u8]| last.iter().position(|other| other == pair).unwrap();
        let mut previous = order(&latest.pop().unwrap().unwrap());
        let forget = module.program("forget").unwrap();
        for left in (0..31).rev() {
            let next = order(&latest.peek().unwrap().unwrap());
            assert!(previous < next);
            previous = next;
            assert_eq!(forget.run_with(engine, &mut Packet::new(packets[0])).unwrap(), PASS);
            assert_eq!(latest.len(), left);
        }
        assert_eq!(forget.run_with(engine, &mut Packet::new(packets[0])).unwrap(), DROP);
    }
}
