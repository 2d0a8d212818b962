//! Contexts and functions that are described as data: what is lent must fit, whatever the host's implementation does.

use skep::function::{Given, Parameter, Prototype, Returns};
use skep::host::{FieldType, HostData, HostType, Lending, StructType, TakingBack, VerdictType};
use skep::isa::Size;
use skep::{Error, Object, Runtime};
use std::sync::OnceLock;

/// A number, a slice and a structure behind a pointer, all writable.
fn kind() -> &'static HostType {
    static KIND: OnceLock<&HostType> = OnceLock::new();
    KIND.get_or_init(|| {
        let number = FieldType::Number { size: Size::B2, signed: false, writable: true };
        let inner = StructType::new("inner").field("depth", number.clone());
        let context = StructType::new("outer")
            .field("number", number)
            .field("bytes", FieldType::Slice { writable: true })
            .field("inner", FieldType::Struct { of: inner, writable: true, nullable: false });
        let verdict = VerdictType { name: String::new(), values: vec![("NO".into(), 0), ("YES".into(), 5)] };
        HostType::new(context, "data_contexts", verdict).unwrap()
    })
}

/// What a context lends.
#[derive(Clone, Copy, PartialEq)]
enum Lends {
    All,
    Nothing,
    NoSlice,
    SharedSlice,
    NoStructure,
    TwoNumbers,
    Array,
    TooMuch,
    TooMuchInside,
}

struct Data {
    lends: Lends,
    number: u64,
    bytes: [u8; 4],
    depth: u64,
}

impl HostData for Data {
    fn lend<'r>(&'r mut self, to: &mut Lending<'r>) {
        let Self { lends, number, bytes, depth } = self;
        match lends {
            Lends::Nothing => return,
            Lends::Array => to.bits_array(2, |_| 1),
            _ => to.bits(*number),
        }
        match lends {
            Lends::NoSlice => {}
            Lends::SharedSlice => to.slice(bytes),
            Lends::TwoNumbers => to.bits(1),
            _ => to.slice_mut(bytes),
        }
        to.nested(*lends != Lends::NoStructure, |to| {
            to.bits(*depth);
            if *lends == Lends::TooMuchInside {
                to.bits(1);
            }
        });
        if *lends == Lends::TooMuch {
            to.bits(1);
        }
    }

    fn take_back(&mut self, from: &mut TakingBack<'_>) {
        self.number = from.bits().unwrap_or(self.number);
        from.skip();
        from.nested(true, |from| self.depth = from.bits().unwrap_or(self.depth));
    }
}

fn data(lends: Lends) -> Data {
    Data { lends, number: 0x1_0007, bytes: [1, 2, 3, 4], depth: 9 }
}

#[test]
fn a_context_that_lends_something_else_than_it_describes_is_refused_before_the_run() {
    let runtime = Runtime::builder().host_type(kind()).build().unwrap();
    let insns = skep::isa::assemble(
        "r2 = *(u64 *)(r1 + 24)     // inner
         r3 = *(u16 *)(r2 + 0)
         r3 += 1
         *(u16 *)(r2 + 0) = r3
         r4 = *(u16 *)(r1 + 0)
         *(u16 *)(r1 + 0) = r3
         r5 = *(u64 *)(r1 + 8)      // bytes
         r6 = *(u64 *)(r1 + 16)
         r7 = r5
         r7 += 1
         if r7 > r6 goto +1
         *(u8 *)(r5 + 0) = r4
         r0 = 5
         exit",
    )
    .unwrap();
    let module = runtime.load(&Object::from_insns("bump", kind().program_type(), insns)).unwrap();
    let program = &module.programs()[0];
    let mut whole = data(Lends::All);
    assert_eq!(program.run_data(kind(), &mut whole, &mut ()).unwrap(), 5);
    // Numbers have the size that the type says.
    assert_eq!((whole.number, whole.bytes[0], whole.depth), (10, 7, 10));
    let wrong = [
        Lends::Nothing,
        Lends::NoSlice,
        Lends::SharedSlice,
        Lends::NoStructure,
        Lends::TwoNumbers,
        Lends::Array,
        Lends::TooMuch,
        Lends::TooMuchInside,
    ];
    for lends in wrong {
        let mut context = data(lends);
        let result = program.run_data(kind(), &mut context, &mut ());
        assert!(matches!(result, Err(Error::Lent { .. })), "{result:?}");
        assert_eq!((context.number, context.bytes[0], context.depth), (0x1_0007, 1, 9));
    }
}

#[test]
fn a_result_between_the_verdicts_is_an_error() {
    let runtime = Runtime::builder().host_type(kind()).build().unwrap();
    let insns = skep::isa::assemble("r0 = 3\nexit").unwrap();
    let module = runtime.load(&Object::from_insns("between", kind().program_type(), insns)).unwrap();
    let result = module.programs()[0].run_data(kind(), &mut data(Lends::All), &mut ());
    assert!(matches!(result, Err(Error::Verdict { result: 3, .. })), "{result:?}");
}

#[test]
fn functions_of_a_type_and_others_need_their_own_prototypes() {
    let method = Prototype::new(&[Parameter::Host], Returns::Nothing).unwrap();
    let function = Prototype::new(&[], Returns::Nothing).unwrap();
    let wrong = Runtime::builder().dynamic_function(1000, "f", &method, |_, _| 0).build();
    assert!(matches!(wrong, Err(Error::Prototype { .. })), "{wrong:?}");
    let wrong = Runtime::builder().dynamic_method(kind(), "f", &function, |_, _| 0).build();
    assert!(matches!(wrong, Err(Error::Prototype { .. })), "{wrong:?}");
}

#[test]
fn a_function_that_panics_ends_the_run_and_changes_nothing() {
    let bytes = Parameter::Bytes { writable: true, nullable: false };
    let prototype = Prototype::new(&[bytes], Returns::OrErrno).unwrap();
    let runtime = Runtime::builder()
        .dynamic_function(1000, "panics", &prototype, |_, given| {
            if let [Given::Bytes(Some(bytes))] = given {
                bytes.fill(7);
            }
            panic!("by a function")
        })
        .build()
        .unwrap();
    let insns = skep::isa::assemble("call panics#1000\nexit").unwrap();
    let object = Object::from_insns("calls", &skep::abi::RAW, insns);
    let module = runtime.linker(&object).buffer_len(4).load().unwrap();
    let mut buffer = [1; 4];
    let result = module.programs()[0].run_raw(&mut buffer);
    assert!(matches!(result, Err(Error::HostPanicked { .. })), "{result:?}");
    assert_eq!(buffer, [1; 4]);
}
