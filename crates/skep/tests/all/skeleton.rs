//! A generated skeleton compiles, and sees what the programs see. `crates/skep-cli/tests/command/skeletons.rs`
//! compares the file with what the command makes.

#[path = "../objects/typed/typed.skel.rs"]
mod generated;

use generated::typed::{self, Direction, Event, Flow, FlowKey, Settings, Skeleton, state};
use skep::{Object, Packet, RingBuffer, Runtime, UpdateFlags};
use zerocopy::FromBytes;

#[test]
fn a_generated_skeleton_runs_its_programs_over_typed_maps_and_variables() {
    let runtime = Runtime::new().unwrap();
    let object = typed::object().unwrap();
    let linker = typed::before_load::scale(runtime.linker(&object), 3);
    let skeleton = Skeleton::of(linker.load().unwrap()).unwrap();
    let key = FlowKey { source: 0x0a00_0001, port: 80, protocol: 6, local: 0 };
    let none = Direction { packets: 0, bytes: 0 };
    let flow = Flow {
        directions: [none; 2],
        state: state::STATE_OPEN,
        score: 0,
        name: [0; 8],
        ttl: 1,
        bits_49: [0; 7],
    };
    skeleton.maps.flows.insert(&key, &flow, UpdateFlags::Any).unwrap();
    let mut events = RingBuffer::new(&skeleton.maps.events).unwrap();
    skeleton.set_limit(1).unwrap();
    let run = || skeleton.programs.count.run(&mut Packet::new(&[0; 60])).unwrap();
    assert_eq!([run(), run()], [2, 1]);
    assert_eq!(
        (skeleton.seen().unwrap(), skeleton.scale().unwrap(), skeleton.balance().unwrap()),
        (2, 3, -5)
    );
    assert_eq!(
        skeleton.settings().unwrap(),
        Settings { rate: 1000, burst: 10, enabled: 0, padding_13: [0; 3] }
    );
    assert_eq!(skeleton.maps.flows.get(&key).unwrap().unwrap().directions[0].packets, 2);
    let totals = skeleton.maps.totals.get(&0).unwrap().unwrap();
    assert_eq!(totals.iter().map(|one| one.bytes).sum::<u64>(), 2 * 3 * 60);
    let record = events.next_record().map(|record| Event::read_from_bytes(&record).unwrap());
    assert_eq!(record, Some(Event { number: 1, length: 60 }));
}

#[test]
fn a_skeleton_of_another_version_says_which_field_differs() {
    let grown = Object::parse(include_bytes!("../objects/typed/grown.bpf.o")).unwrap();
    let module = Runtime::new().unwrap().load(&grown).unwrap();
    let error = Skeleton::of(module).unwrap_err().to_string();
    assert_eq!(error, "value of map totals: field packets: expected offset 8, found offset 0");
}
