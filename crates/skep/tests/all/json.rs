//! Keys, values and variables as JSON.

use serde_json::{Value, json};
use skep::json::{MismatchKind, Shape};
use skep::{Object, Runtime};
use skep_btf::{Btf, Kind};

/// Bytes as they are.
fn raw(bytes: &[u8]) -> Value {
    bytes.iter().map(|byte| Value::from(format!("0x{byte:02x}"))).collect()
}

fn object() -> Object {
    Object::parse(include_bytes!("../../../skep-cli/tests/objects/filled.bpf.o")).unwrap()
}

fn shape<'a>(object: &'a Object, name: &str) -> Shape<'a> {
    let btf = object.types().unwrap();
    let ty = btf.find(name, Kind::Struct).unwrap();
    Shape::new(Some(btf), Some(ty), btf.size(ty).unwrap() as usize)
}

#[test]
fn any_bytes_come_back_from_their_json() {
    let object = object();
    let mut random = 1u64;
    for name in ["rule", "action", "prefix"] {
        let shape = shape(&object, name);
        for round in 0..2000 {
            let mut byte = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Zeroes and letters often, so that some text and padding is clean.
                let byte = (random >> 56) as u8;
                if round % 3 == 0 { byte } else { [0, b'a', byte][byte as usize % 3] }
            };
            let bytes: Vec<u8> = (0..shape.size()).map(|_| byte()).collect();
            let json = shape.to_json(&bytes);
            assert_eq!(shape.from_json("value", &json).unwrap(), bytes, "{json}");
        }
    }
}

#[test]
fn bytes_stand_where_the_type_cannot_say_them() {
    let object = object();
    let rule = shape(&object, "rule");
    let mut bytes = *b"\x50\x00\x06eth0\0\0\0\0\0";
    assert_eq!(rule.to_json(&bytes), json!({ "port": 80, "protocol": 6, "name": "eth0" }));
    bytes[10] = b'x';
    assert_eq!(rule.to_json(&bytes)["name"], raw(b"eth0\0\0\0x"));
    bytes[11] = 1;
    assert_eq!(rule.to_json(&bytes), raw(&bytes), "padding");
    let untyped = Shape::new(None, None, 3);
    assert_eq!(untyped.to_json(&[1, 2, 255]), json!(["0x01", "0x02", "0xff"]));
    assert_eq!(Shape::new(None, None, 4).to_json(&[1, 2, 0, 0]), json!(513));
}

fn module() -> skep::Module {
    let object = Object::parse(include_bytes!("../objects/typed/typed.bpf.o")).unwrap();
    Runtime::builder().cpus(2).build().unwrap().load(&object).unwrap()
}

#[test]
fn what_a_map_says_fills_another_one_with_the_same_bytes() {
    let (from, to) = (module(), module());
    let mut flow = vec![0; 56];
    flow[0] = 5;
    flow[32] = 7; // STATE_CLOSED
    flow[36..40].copy_from_slice(&(-2i32).to_ne_bytes());
    flow[40..44].copy_from_slice(b"eth0");
    flow[49] = 0b0001_0101; // flags 5, mark 2
    let flags = skep::UpdateFlags::Any;
    from.map("flows").unwrap().update(&[1, 0, 0, 10, 80, 0, 6, 1], &flow, flags).unwrap();
    from.map("totals").unwrap().update(&2u32.to_ne_bytes(), &[9; 32], flags).unwrap();
    from.map("routes").unwrap().update(&[8, 0, 0, 0, 10, 0, 0, 0], &[1, 0, 0, 0], flags).unwrap();
    for name in ["flows", "totals", "routes"] {
        let elements = from.map_json(name).unwrap().to_json();
        let target = to.map_json(name).unwrap();
        for element in elements.as_array().unwrap() {
            assert!(target.insert("element", element).unwrap().is_some());
        }
        let all = |module: &skep::Module| module.map(name).unwrap().entries().collect::<Vec<_>>();
        assert_eq!(all(&from), all(&to), "{name}: {elements}");
    }
    let flow = &from.map_json("flows").unwrap().to_json()[0];
    assert_eq!(flow["key"], json!({ "source": 0x0a00_0001, "port": 80, "protocol": 6, "local": true }));
    let value = &flow["value"];
    assert_eq!(
        [&value["state"], &value["score"], &value["flags"], &value["mark"]],
        [&json!("STATE_CLOSED"), &json!(-2), &json!(5), &json!(2)]
    );
    let jobs = to.map_json("jobs").unwrap();
    assert_eq!(jobs.insert("job", &json!({ "value": { "number": 3 } })).unwrap(), None);
    assert_eq!(to.map("jobs").unwrap().peek().unwrap().unwrap(), [3, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn an_error_names_the_path_the_number_and_the_type() {
    let module = module();
    let flows = module.map_json("flows").unwrap();
    let error = |value: Value| flows.value_from_json("value", &value).unwrap_err().to_string();
    let text = error(json!({ "directions": [{}, { "packets": "1e3" }] }));
    assert!(text.starts_with("value.directions[1].packets: expected a number for __u64"), "{text}");
    assert_eq!(error(json!({ "ttl": 300 })), "value.ttl: 300 does not fit __u8 (0 to 255)");
    let kind = |value: Value| flows.value_from_json("value", &value).unwrap_err().kind;
    assert_eq!(kind(json!({ "ttl": 300 })), MismatchKind::Range);
    assert_eq!(kind(json!({ "mark": 32 })), MismatchKind::Range);
    assert_eq!(kind(json!({ "ttl": [1] })), MismatchKind::Type);
    assert_eq!(kind(json!(5)), MismatchKind::Type);
    assert_eq!(kind(json!({ "no_such_member": 5 })), MismatchKind::Other);
    assert_eq!(error(json!({ "mark": 32 })), "value.mark: 32 does not fit a bit field of 5 bits (0 to 31)");
    assert!(error(json!({ "tll": 1 })).contains("has no member tll; it has directions, state"));
    assert!(
        error(json!({ "name": "far too long" })).starts_with("value.name: expected text of at most 8 bytes")
    );
    let totals = module.map_json("totals").unwrap();
    let error = totals.insert("[0]", &json!({ "key": 0, "values": [{}, {}, {}] })).unwrap_err().to_string();
    assert_eq!(error, "[0].values: has 3 values, but there are 2 CPUs");
}

#[test]
fn a_truth_value_that_is_neither_is_shown_as_its_byte() {
    let module = module();
    let settings = module.variable_json("settings").unwrap();
    assert_eq!(settings.to_json(&module.variable("settings").unwrap())["enabled"], json!(false));
    let mut bytes = module.variable("settings").unwrap();
    bytes[12] = 2;
    assert_eq!(settings.to_json(&bytes)["enabled"], raw(&[2]));
    assert_eq!(settings.from_json("settings", &settings.to_json(&bytes)).unwrap(), bytes);
}

/// Types by hand, as no compiler makes them.
fn odd_types(types: &[[u32; 4]]) -> Btf {
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    let size = 16 * types.len() as u32;
    bytes.extend([24, 0, size, size, 3].iter().flat_map(|word: &u32| word.to_le_bytes()));
    bytes.extend(types.iter().flatten().flat_map(|word| word.to_le_bytes()));
    bytes.extend(*b"\0t\0");
    Btf::parse(bytes).unwrap()
}

#[test]
fn numbers_of_odd_sizes_are_bytes() {
    // A signed integer of 16 bytes, and a truth value of none.
    let types = odd_types(&[[1, 1 << 24, 16, 1 << 24 | 128], [1, 1 << 24, 0, 4 << 24]]);
    let wide = Shape::new(Some(&types), Some(1), 16);
    assert_eq!(wide.to_json(&[7; 16]), raw(&[7; 16]));
    assert!(wide.from_json("wide", &json!(7)).is_err());
    let empty = Shape::new(Some(&types), Some(2), 0);
    assert!(empty.from_json("empty", &json!(true)).is_err());
}

/// 2^53 + 1 is the first number of which readers of floating-point numbers lose a digit.
#[test]
fn large_numbers_are_text_or_numbers_as_the_reader_needs_them() {
    let object = Object::parse(include_bytes!("../objects/typed/typed.bpf.o")).unwrap();
    let seen = object.variable_json("seen").unwrap();
    let bytes = ((1u64 << 53) + 1).to_ne_bytes();
    assert_eq!(seen.to_json(&bytes), json!("9007199254740993"));
    assert_eq!(seen.to_exact_json(&bytes), json!(9_007_199_254_740_993u64));
    assert_eq!(seen.from_json("seen", &seen.to_exact_json(&bytes)).unwrap(), bytes);
    let error = object.variable_json("nothing").unwrap_err().to_string();
    assert!(error.contains("nothing") && error.contains("limit"), "{error}");
}
