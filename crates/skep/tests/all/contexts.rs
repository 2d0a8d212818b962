//! Programs that do not run on packets: their contexts as the host fills them.

use skep::abi::{Context as Seen, FieldKind, Native, ProgramType, StructKind, TYPES};
use skep::isa::assemble;
use skep::world::{Protocol, Socket, SocketState};
use skep::{Context, Engine, Error, Object, Packet, Program, Runtime};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

fn kind(name: &str) -> &'static ProgramType {
    ProgramType::from_name(name).unwrap_or_else(|| panic!("{name}"))
}

fn try_load(name: &str, text: &str) -> Result<Program, Error> {
    let object = Object::from_insns("program", kind(name), assemble(text).unwrap());
    Ok(Runtime::new().unwrap().load(&object)?.programs()[0].clone())
}

fn load(name: &str, text: &str) -> Program {
    try_load(name, text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The result of both engines, each over the context that `make` makes.
fn both(program: &Program, make: impl Fn() -> Context) -> (u64, Context) {
    let (mut first, mut second) = (make(), make());
    let jit = program.run_context(&mut first).unwrap();
    let interpreter = program.run_context_with(Engine::Interpreter, &mut second).unwrap();
    assert_eq!((jit, first.bytes()), (interpreter, second.bytes()));
    assert_eq!((first.data(), first.flow_keys()), (second.data(), second.flow_keys()));
    (jit, first)
}

fn socket() -> Arc<Socket> {
    let mut socket = Socket::connected(
        Protocol::Tcp,
        SocketAddr::from(([10, 0, 0, 1], 443)),
        SocketAddr::from(([10, 0, 0, 2], 50_000)),
    );
    socket.mark = 77;
    Arc::new(socket)
}

/// A context of that type with all that programs rely on.
fn context(of: &'static ProgramType) -> Context {
    let mut context = Context::new(of).unwrap();
    for (name, full) in addresses(of) {
        if full {
            context.set_socket(name, Some(socket())).unwrap();
        }
    }
    context
}

/// The fields with sockets, and whether they must not be null.
fn addresses(of: &ProgramType) -> Vec<(&'static str, bool)> {
    let Seen::Struct(layout) = of.context else { return Vec::new() };
    let socket = |kind: FieldKind| match kind {
        FieldKind::Struct { kind: StructKind::FlowKeys, .. } => None,
        FieldKind::Struct { maybe_null, .. } => Some(!maybe_null),
        _ => None,
    };
    layout.fields.iter().filter_map(|field| Some((field.name, socket(field.kind)?))).collect()
}

#[test]
fn each_number_of_each_type_is_read_as_the_host_set_it() {
    let mut fields = 0;
    for of in TYPES.iter().filter(|of| of.native == Some(Native::Struct)) {
        let Seen::Struct(layout) = of.context else { panic!("{} has no structure", of.name) };
        // The others: `numbers_of_types_with_few_results_are_compared`.
        let any = of.results == skep::abi::Results::Any;
        for field in layout.fields.iter().filter(|field| any && field.kind == FieldKind::Scalar) {
            let (bytes, offset) = (field.size.bytes(), field.offset);
            let object = Object::from_insns(
                "program",
                of,
                assemble(&format!("r0 = *(u{} *)(r1 + {offset})\nexit", 8 * bytes)).unwrap(),
            );
            let module = Runtime::new().unwrap().load(&object).unwrap();
            let value = 0x8877_6655_4433_2211 & (u64::MAX >> (64 - 8 * bytes));
            let (read, after) = both(&module.programs()[0], || {
                let mut context = context(of);
                if !["regs", "args"].contains(&field.name) {
                    context.set(field.name, value).unwrap();
                    assert_eq!(context.field(field.name).unwrap(), value);
                }
                context
            });
            if !["regs", "args"].contains(&field.name) {
                assert_eq!(read, value, "{} {}", of.name, field.name);
                assert_eq!(after.field(field.name).unwrap(), value);
                fields += 1;
            }
        }
    }
    assert!(fields > 25, "{fields}");
}

#[test]
fn numbers_of_types_with_few_results_are_compared() {
    let mut fields = 0;
    for of in TYPES.iter().filter(|of| of.native == Some(Native::Struct)) {
        let Seen::Struct(layout) = of.context else { panic!("{} has no structure", of.name) };
        let skep::abi::Results::Range { min, max } = of.results else { continue };
        if min == max {
            continue;
        }
        for field in layout.fields.iter().filter(|field| field.kind == FieldKind::Scalar) {
            let (bytes, offset) = (field.size.bytes(), field.offset);
            let value = 0x1122_3344_5566_7788u64 & (u64::MAX >> (64 - 8 * bytes));
            let text = format!(
                "r1 = *(u{} *)(r1 + {offset})\nr2 = {value} ll\nr0 = 1\nif r1 == r2 goto +1\nr0 = 0\nexit",
                8 * bytes
            );
            let object = Object::from_insns("program", of, assemble(&text).unwrap());
            let module = Runtime::new().unwrap().load(&object).unwrap();
            let with = |value: u64| {
                both(&module.programs()[0], || {
                    let mut context = context(of);
                    context.set(field.name, value).unwrap();
                    context
                })
                .0
            };
            assert_eq!((with(value), with(value - 1)), (1, 0), "{} {}", of.name, field.name);
            fields += 1;
        }
    }
    assert!(fields > 100, "{fields}");
}

#[test]
fn what_a_program_writes_the_host_reads() {
    let program = load(
        "cgroup/connect6",
        "*(u32 *)(r1 + 24) = 0x5000
         *(u32 *)(r1 + 20) = 9
         r0 = 1
         exit",
    );
    let (_, after) = both(&program, || {
        let mut context = context(kind("cgroup/connect6"));
        context.set_address("user_ip", "2001:db8::1".parse::<IpAddr>().unwrap()).unwrap();
        context
    });
    assert_eq!((after.field("user_port").unwrap(), after.field("user_ip6[3]").unwrap()), (0x5000, 9));
    let first = u32::from_ne_bytes([0x20, 1, 0xd, 0xb8]);
    assert_eq!(after.field("user_ip6[0]").unwrap(), u64::from(first));
}

#[test]
fn an_option_is_read_and_written_between_its_addresses() {
    let program = load(
        "cgroup/getsockopt",
        "r2 = *(u64 *)(r1 + 8)
         r3 = *(u64 *)(r1 + 16)
         r0 = 0
         r4 = r2
         r4 += 4
         if r4 > r3 goto +5
         r5 = *(u32 *)(r2 + 0)
         r5 += 1
         *(u32 *)(r2 + 0) = r5
         *(u32 *)(r1 + 32) = 4
         r0 = 1
         exit",
    );
    let with = |data: &[u8]| {
        both(&program, || {
            let mut context = context(kind("cgroup/getsockopt"));
            context.set_data(data).unwrap();
            context
        })
    };
    let (result, after) = with(&7u32.to_ne_bytes());
    assert_eq!((result, after.data(), after.field("optlen").unwrap()), (1, &8u32.to_ne_bytes()[..], 4));
    assert_eq!(with(&[1, 2, 3]).0, 0, "no byte more than there is");
    assert_eq!(with(&[]).0, 0);
}

#[test]
fn flow_keys_are_what_the_dissector_writes() {
    let program = load(
        "flow_dissector",
        "r2 = *(u32 *)(r1 + 76)
         r3 = *(u32 *)(r1 + 80)
         r4 = *(u64 *)(r1 + 144)
         r0 = 2
         r5 = r2
         r5 += 2
         if r5 > r3 goto +3
         r5 = *(u16 *)(r2 + 0)
         *(u16 *)(r4 + 0) = r5
         r0 = 0
         exit",
    );
    let (result, after) = both(&program, || {
        let mut context = context(kind("flow_dissector"));
        context.set_data(&[14, 0, 3]).unwrap();
        context
    });
    assert_eq!((result, &after.flow_keys()[..2]), (0, &[14, 0][..]));
}

#[test]
fn sockets_of_contexts_are_read() {
    // Mark, destination port in network order, source port.
    let program = load(
        "sk_msg",
        "r1 = *(u64 *)(r1 + 72)
         r0 = *(u32 *)(r1 + 16)
         r2 = *(u16 *)(r1 + 48)
         r0 <<= 16
         r0 |= r2
         r0 <<= 16
         r2 = *(u32 *)(r1 + 44)
         r0 |= r2
         exit",
    );
    let (result, _) = both(&program, || context(kind("sk_msg")));
    assert_eq!(result, 77 << 32 | u64::from(50_000u16.to_be()) << 16 | 443);
    let mut without = Context::of(&program).unwrap();
    let error = program.run_context(&mut without).unwrap_err();
    assert!(matches!(&error, Error::FieldMissing { name, .. } if name == "sk"), "{error}");
    let mut waiting = Socket::clone(&socket());
    waiting.state = SocketState::TimeWait;
    let error = without.set_socket("sk", Some(Arc::new(waiting.clone()))).unwrap_err();
    assert!(matches!(error, Error::FieldMissing { .. }), "{error}: not a full one");
    let mut reuse = context(kind("sk_reuseport"));
    reuse.set_socket("migrating_sk", Some(Arc::new(waiting))).unwrap();
}

#[test]
fn a_socket_that_may_be_null_is_null_where_the_host_gives_none() {
    let program = load(
        "sockops",
        "r1 = *(u64 *)(r1 + 184)
         r0 = 0
         if r1 == 0 goto +3
         r1 = *(u32 *)(r1 + 16)
         if r1 != 77 goto +1
         r0 = 1
         exit",
    );
    assert_eq!(both(&program, || context(kind("sockops"))).0, 0);
    let with = || {
        let mut context = context(kind("sockops"));
        context.set_socket("sk", Some(socket())).unwrap();
        context
    };
    assert_eq!(both(&program, with).0, 1);
}

#[test]
fn plain_bytes_are_registers_arguments_and_records() {
    let program = load("raw_tracepoint", "r0 = *(u64 *)(r1 + 8)\nexit");
    let with = |bytes: &[u8]| {
        both(&program, || {
            let mut context = context(kind("raw_tracepoint"));
            context.set_bytes(bytes).unwrap();
            context
        })
        .0
    };
    assert_eq!(with(&[1; 16]), 0x0101_0101_0101_0101);
    assert_eq!(with(&[1; 12]), 0x0101_0101, "the others are 0");
    let error = Context::of(&program).unwrap().set_bytes(&[0; 97]).unwrap_err();
    assert!(matches!(error, Error::ContextBytes { given: 97, most: 96, .. }), "{error}");
    let program = load("syscall", "*(u8 *)(r1 + 32767) = 3\nr0 = *(u32 *)(r1 + 4)\nexit");
    let (_, after) = both(&program, || context(kind("syscall")));
    assert_eq!(after.bytes()[32767], 3);
    let program = load("perf_event", "r0 = *(u64 *)(r1 + 16)\nexit");
    let (read, _) = both(&program, || {
        let mut context = context(kind("perf_event"));
        context.set("regs[2]", 99).unwrap();
        context
    });
    assert_eq!(read, 99);
    let program = load(
        "raw_tracepoint.w",
        "r1 = *(u64 *)(r1 + 0)
         *(u64 *)(r1 + 32752) = 5
         r0 = 0
         exit",
    );
    let (_, mut after) = both(&program, || context(kind("raw_tracepoint.w")));
    assert_eq!(after.record_mut()[32752..32760], 5u64.to_ne_bytes());
}

#[test]
fn what_does_not_fit_is_an_error_that_says_what_there_is() {
    let mut context = context(kind("cgroup_device"));
    let error = context.set("magor", 1).unwrap_err();
    assert!(error.to_string().contains("access_type, major, minor"), "{error}");
    let error = context.set("major", 1 << 32).unwrap_err();
    assert!(matches!(error, Error::FieldValue { bytes: 4, .. }), "{error}");
    assert!(matches!(context.set_data(&[1]), Err(Error::NoField { .. })));
    assert!(matches!(context.set_bytes(&[1]), Err(Error::ContextBytes { most: 0, .. })));
    assert!(matches!(context.set_socket("major", None), Err(Error::NoField { .. })));
    assert!(matches!(Context::new(kind("xdp")), Err(Error::NoContext { .. })));
    assert!(matches!(Context::new(kind("lsm")), Err(Error::NoContext { .. })));
    let mut message = Context::new(kind("sk_msg")).unwrap();
    assert!(message.set("data", 1).is_err(), "the host sets no address");
    assert!(message.set("sk", 1).is_err());
}

#[test]
fn programs_run_only_on_what_they_were_verified_for() {
    let device = load("cgroup_device", "r0 = 1\nexit");
    let wrong = |result: Result<u64, Error>| matches!(result, Err(Error::WrongInput { .. }));
    assert!(wrong(device.run(&mut Packet::new(&[0; 64]))));
    assert!(wrong(device.run_raw(&mut [0; 8])));
    assert!(wrong(device.run_context(&mut context(kind("sk_msg")))));
    assert!(wrong(load("xdp", "r0 = 2\nexit").run_context(&mut context(kind("sk_msg")))));
    // Types of one name have one native context.
    let connect = load("cgroup/connect4", "r0 = *(u32 *)(r1 + 24)\nr0 &= 1\nexit");
    assert_eq!(connect.run_context(&mut context(kind("cgroup/bind6"))).unwrap(), 0);
}

/// A context that the host made up could lead the program anywhere.
#[test]
fn a_context_of_a_type_defined_by_the_host_is_refused() {
    static LYING: ProgramType = ProgramType { name: "cgroup_device", ..ProgramType::PLAIN };
    assert!(matches!(Context::new(&LYING), Err(Error::ForeignType { .. })));
}

#[test]
fn bytes_of_a_context_are_copied_and_zeroes_where_there_are_not_enough() {
    for name in ["flow_dissector", "sk_reuseport"] {
        let ask = |offset: i32, call: &str| {
            let text = format!(
                "r2 = -1
                 *(u64 *)(r10 - 8) = r2
                 r2 = {offset}
                 r3 = r10
                 r3 += -8
                 r4 = 4
                 r5 = 1
                 call {call}
                 r1 = *(u32 *)(r10 - 8)
                 if r0 == 0 goto out
                 if r1 != 0 goto out
                 r1 = r0
            out: r0 = r1
                 exit"
            );
            let program = load(name, &text);
            let (result, _) = both(&program, || {
                let mut context = context(kind(name));
                context.set_data(&[1, 2, 3, 4, 5, 6]).unwrap();
                context
            });
            result as u32
        };
        const EFAULT: u32 = -14i32 as u32;
        let load_bytes = "skb_load_bytes#26";
        let results = [0, 2, 3, 6, -1, i32::MAX].map(|offset| ask(offset, load_bytes));
        assert_eq!(results, [0x0403_0201, 0x0605_0403, EFAULT, EFAULT, EFAULT, EFAULT], "{name}");
    }
    // The headers before the bytes are not there.
    let text = "r2 = 0\nr3 = r10\nr3 += -8\nr4 = 4\nr5 = 1\ncall 68\nexit";
    let program = load("sk_reuseport", text);
    assert_eq!(both(&program, || context(kind("sk_reuseport"))).0 as i64, -14);
}

#[test]
fn programs_of_control_groups_and_tunnels_see_the_packet_from_its_network_header() {
    let mut frame = vec![0xee; 14];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame.extend([0x45, 1, 2, 3, 4, 5, 6, 7]);
    for (name, write) in [("cgroup/skb", ""), ("lwt_xmit", "*(u8 *)(r2 + 1) = 9\n")] {
        let skip = 4 + usize::from(!write.is_empty());
        let program = load(
            name,
            &format!(
                "r2 = *(u32 *)(r1 + 76)
                 r3 = *(u32 *)(r1 + 80)
                 r0 = 0
                 r4 = r2
                 r4 += 8
                 if r4 > r3 goto +{skip}
                 {write}r0 = *(u8 *)(r2 + 0)
                 r1 = *(u32 *)(r1 + 0)
                 r0 -= r1
                 r0 &= 1
                 exit"
            ),
        );
        for engine in [Engine::Jit, Engine::Interpreter] {
            let mut packet = Packet::new(&frame);
            // 0x45 - 8, of which the lowest bit counts.
            assert_eq!(program.run_with(engine, &mut packet).unwrap(), 1, "{name}");
            assert_eq!(packet.bytes().len(), frame.len(), "the link-layer header is there again");
            assert_eq!(packet.bytes()[..14], frame[..14]);
            assert_eq!(packet.bytes()[15], if write.is_empty() { 1 } else { 9 });
            for short in [0, 5, 14, 15] {
                let mut packet = Packet::new(&frame[..short]);
                assert_eq!(program.run_with(engine, &mut packet).unwrap(), 0);
                assert_eq!(packet.bytes(), &frame[..short]);
            }
        }
    }
}

#[test]
fn a_packet_has_the_socket_that_the_host_gives_it() {
    let program = load(
        "tc",
        "r1 = *(u64 *)(r1 + 168)
         r0 = 0
         if r1 == 0 goto +1
         r0 = *(u32 *)(r1 + 4)
         exit",
    );
    let mut packet = Packet::new(&[0; 64]);
    assert_eq!(program.run(&mut packet).unwrap(), 0);
    let local = SocketAddr::from((Ipv6Addr::LOCALHOST, 80));
    packet.set_socket(Some(Arc::new(Socket::listening(local))));
    for engine in [Engine::Jit, Engine::Interpreter] {
        assert_eq!(program.run_with(engine, &mut packet).unwrap(), 10);
    }
    let ports = load(
        "cgroup/skb",
        "r0 = *(u32 *)(r1 + 136)\nr0 &= 3\nr1 = *(u32 *)(r1 + 132)\nr0 += r1\nr0 &= 1\nexit",
    );
    packet.set_socket(Some(socket()));
    assert_eq!(ports.run(&mut packet).unwrap(), 1);
    packet.set_socket(None);
    assert_eq!(program.run(&mut packet).unwrap(), 0);
}
