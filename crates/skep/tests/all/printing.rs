//! Text that programs print: strings from their own memory and numbers, in both engines, and never an address of
//! the host.

use skep::{Engine, Error, Module, Object, Packet, Runtime, UpdateFlags};
use std::path::Path;
use std::sync::{Arc, Mutex};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

/// Every program of the file, and the text that it prints.
struct Printing {
    module: Module,
    messages: Arc<Mutex<Vec<String>>>,
}

fn object(name: &str) -> Object {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects/printing");
    Object::open(folder.join(name).with_extension("bpf.o")).unwrap()
}

impl Printing {
    fn new() -> Self {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&messages);
        let runtime = Runtime::builder()
            .log(move |_, message| kept.lock().unwrap().push(message.to_owned()))
            .build()
            .unwrap();
        Self { module: runtime.load(&object("printing")).unwrap_or_else(|error| panic!("{error}")), messages }
    }

    /// The result and the messages of one run in each engine; the argument is the packet's first byte.
    fn runs(&self, program: &str, first: u8) -> [(u64, Vec<String>); 2] {
        let program = self.module.program(program).unwrap();
        ENGINES.map(|engine| {
            let mut packet = [0; 64];
            packet[0] = first;
            let result = program.run_with(engine, &mut Packet::new(&packet)).unwrap();
            (result, std::mem::take(&mut *self.messages.lock().unwrap()))
        })
    }

    /// The messages, if the program returns 0 and both engines agree.
    fn messages(&self, program: &str, first: u8) -> Vec<String> {
        let [jit, interpreter] = self.runs(program, first);
        assert_eq!((&jit, jit.0), (&interpreter, 0), "{program}");
        jit.1
    }
}

#[test]
fn strings_and_addresses_are_printed_from_every_kind_of_memory() {
    let printing = Printing::new();
    assert_eq!(printing.messages("from_registers", 0), ["stack constant -7"]);
    let six = "2001:0db8:0000:0000:0000:0000:0000:0001";
    assert_eq!(printing.messages("from_an_array", 0), [format!("stack 192.0.2.1 {six} ff -1 c")]);
    let mut event = [0; 40];
    event[8..13].copy_from_slice(b"event");
    event[24..28].copy_from_slice(&[192, 0, 2, 7]);
    printing.module.map("events").unwrap().update(&1u32.to_ne_bytes(), &event, UpdateFlags::Any).unwrap();
    assert_eq!(printing.messages("from_maps", 0), ["event event 192.0.2.7"]);
    assert_eq!(printing.messages("into_memory", 0), ["stack    42|42   |00042: 24"]);
}

#[test]
fn constant_strings_print_whole_even_if_chosen_at_run_time() {
    let printing = Printing::new();
    assert_eq!(printing.messages("one_of_two", 0), ["no"]);
    assert_eq!(printing.messages("one_of_two", 1), ["a longer text than the other"]);
}

#[test]
fn a_string_without_an_end_stops_before_a_pointer() {
    assert_eq!(Printing::new().messages("without_an_end", 0), ["eight___"]);
}

#[test]
fn no_conversion_prints_an_address() {
    let printing = Printing::new();
    for (result, messages) in printing.runs("addresses", 0) {
        assert_eq!((result, messages.len()), (0, 2));
        let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
        let words: Vec<&str> = messages.iter().flat_map(|message| message.split(' ')).collect();
        assert_eq!(words.len(), 6);
        for (at, word) in words.iter().enumerate() {
            // A hash has 32 bits. Addresses have more: stacks are at the upper end of the address space.
            let number = if at == 3 { word.parse().unwrap() } else { hex(word) };
            assert!(number > 0 && number <= u64::from(u32::MAX), "{messages:?}");
        }
    }
}

#[test]
fn numbers_are_printed_and_never_dereferenced() {
    let expected = ["[] [0.0.0.0] []", "0000000000001000 0x2000"];
    assert_eq!(Printing::new().messages("numbers", 0), expected);
}

#[test]
fn wrong_formats_fail_the_call_or_if_constant_verification() {
    let printing = Printing::new();
    for (result, messages) in printing.runs("wrong", 0) {
        assert_eq!((result, messages.len()), (1, 0));
    }
    let Err(Error::Refused(refusal)) = object("wrong").verify("wrong", Default::default()) else {
        panic!("it is refused")
    };
    assert!(refusal.to_string().contains("unknown conversion \"%f\""), "{refusal}");
}

#[test]
fn numbers_of_programs_that_may_let_addresses_out_are_printed_as_they_are() {
    // "%d %lx" at r10 - 16, and three values in registers.
    let text = "*(u64 *)(r10 - 16) = 0x2064_25
         *(u32 *)(r10 - 13) = 0x786c25
         r1 = r10
         r1 += -16
         r2 = 7
         r3 = -3
         r4 = 255
         call 6
         r0 = 0
         exit";
    for (kind, privileged) in [("kprobe", false), ("xdp", true)] {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&messages);
        let log = move |_: &str, message: &str| kept.lock().unwrap().push(message.to_owned());
        let runtime = Runtime::builder().log(log).privileged(privileged).build().unwrap();
        let kind = skep::abi::ProgramType::from_name(kind).unwrap();
        let insns = skep::isa::assemble(&text.replace('_', "")).unwrap();
        let module = runtime.load(&Object::from_insns("prints", kind, insns)).unwrap();
        for engine in ENGINES {
            match skep::Context::new(kind) {
                Ok(mut context) => module.programs()[0].run_context_with(engine, &mut context).unwrap(),
                Err(_) => module.programs()[0].run_with(engine, &mut Packet::new(&[0; 64])).unwrap(),
            };
        }
        assert_eq!(*messages.lock().unwrap(), ["-3 ff", "-3 ff"], "{}", kind.name);
    }
}
