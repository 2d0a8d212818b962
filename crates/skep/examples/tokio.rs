//! A host on tokio: one thread feeds packets to a program, and a task prints the events that the program reports.
//!
//! ```console
//! $ cargo run -p skep --example tokio --features tokio
//! ```

use skep::stream::RingStream;
use skep::{Object, Packet, Runtime};
use std::error::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const OBJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects/typed/typed.bpf.o");
const PACKETS: u32 = 1000;

/// What the program reports of each packet.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Event {
    number: u32,
    length: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let bytes = executor.block_on(host())?;
    println!("{PACKETS} events of {bytes} bytes of packets");
    Ok(())
}

/// Returns the bytes of all packets, as the events say them.
pub(crate) async fn host() -> Result<u64, Box<dyn Error>> {
    let module = Runtime::new()?.load(&Object::open(OBJECT)?)?;
    let program = module.program("count").ok_or("the object has no program `count`")?.clone();
    let mut events = RingStream::new(module.map("events").ok_or("the object has no map `events`")?)?;

    // Runs are short and never wait, so they may be made in tasks as well. A host with traffic of its own has threads
    // for it. The ring has room for 255 events; the program loses others.
    let (acknowledge, acknowledged) = std::sync::mpsc::sync_channel(200);
    let feeding = std::thread::spawn(move || -> Result<(), skep::Error> {
        for number in 0..PACKETS {
            program.run(&mut Packet::new(&vec![0; 60 + number as usize % 100]))?;
            if number >= 200 && acknowledged.recv().is_err() {
                break; // the task has ended
            }
        }
        Ok(())
    });

    // ANCHOR: stream
    let mut bytes = 0;
    for number in 1..=PACKETS {
        let record = events.next_record().await?;
        let event = Event::read_from_bytes(&record).map_err(|_| "a record is no event")?;
        assert_eq!(event.number, number, "events are in the order of the packets");
        bytes += u64::from(event.length);
        let _ended = acknowledge.try_send(());
    }
    // ANCHOR_END: stream
    feeding.join().map_err(|_| "the thread that feeds packets panicked")??;
    Ok(bytes)
}
